// Package redact keeps secrets out of what gswarm records of a job: its command
// line and its environment.
//
// It is a net, not a wall. It knows secrets by the name they are given under
// and by their looks; a secret that has neither is recorded. When in doubt it
// redacts: a lost value costs less than a leaked one.
//
// Replaced by "[redacted]" are
//
//   - the value of a flag whose name says secret, written --name=value, -name=value,
//     --name value or -name value;
//   - the value of an assignment or a field whose name says secret, anywhere in an
//     argument: NAME=value, model.name=value, "name": "value", Name: value, ?name=value;
//   - what stands behind the user's name in a URL, scheme://user:pass@host;
//   - what follows Bearer or Basic in a header, and a long hexadecimal number after
//     the word login;
//   - strings that begin as the keys of well-known services do (AWS, Hugging Face,
//     GitHub, GitLab, OpenAI, Anthropic, Google, NVIDIA, Slack, npm, PyPI, Docker,
//     Weights & Biases), JSON web tokens, and private keys in PEM;
//   - any run of 32 or more letters and digits that mixes upper case, lower case and
//     digits as only a random one does.
//
// A name says secret if one of its words is key, token, secret, password,
// passwd, passphrase, pass, pwd, credential, cred, auth, authorization or bearer, or ends
// with one of the longer of these (apikey, PGPASSWORD). Words are divided by
// punctuation and by capitals. Names that end in a word such as id, file, heads,
// count or size are no secrets (--key-file, --pad-token-id,
// num_key_value_heads), nor are plurals (--max-tokens) and words that only
// begin like one (--tokenizer).
//
// Not caught are secrets under a name of one letter, since -p may be a port, a
// partition or a password; secrets as bare positional arguments that look like
// words, numbers or hexadecimal digests; what a program reads from a file or
// its standard input, which is never recorded; and secrets that are encoded, split,
// or given under a name that says nothing.
package redact

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

// Args returns a command line with its secrets replaced. The result has as
// many arguments as args, which is not changed; redacting it again changes
// nothing.
func Args(args []string) []string {
	out := make([]string, len(args))
	secret, login := false, false // what the argument before says of this one
	for i, a := range args {
		switch {
		case secret && !strings.HasPrefix(a, "-"), login && longHex.MatchString(a):
			out[i] = Mark
		default:
			out[i] = arg(a)
		}
		// What an argument has become may say more of the next than what it
		// was: a secret in it may have hidden that it is a flag's name.
		secret = announces(a) || announces(out[i])
		login = a == "login"
	}
	return out
}

// announces says whether the argument behind a is the value of a secret's flag.
func announces(a string) bool {
	name, flag := strings.CutPrefix(a, "-")
	return flag && !strings.ContainsAny(name, "= \t\n") && Secret(name)
}

// Env returns the value of an environment variable with secrets in it replaced,
// and whether the variable may be recorded at all: not if its name contains
// KEY, TOKEN, SECRET, PASS, PWD, CRED or AUTH.
func Env(name, value string) (string, bool) {
	upper := strings.ToUpper(name)
	for _, w := range []string{"KEY", "TOKEN", "SECRET", "PASS", "PWD", "CRED", "AUTH"} {
		if strings.Contains(upper, w) {
			return "", false
		}
	}
	return text(value), true
}

// arg redacts one argument. One that is as a whole a secret's flag or
// assignment loses all of its value, spaces and quotes included.
func arg(a string) string {
	if m := whole.FindStringSubmatchIndex(a); m != nil && Secret(a[m[2]:m[3]]) {
		if m[1] == len(a) {
			return a
		}
		return a[:m[1]] + Mark
	}
	return text(a)
}

var (
	// whole matches the name and the equals sign of a flag or assignment
	// that an argument consists of.
	whole = regexp.MustCompile(`^-{0,2}([A-Za-z_][A-Za-z0-9_.-]*)=`)

	// assigned matches a name and what stands between it and its value in
	// name=value and name: value; flagged a flag and the space behind it in a
	// line for a shell. Group 1 is the name. The values have expressions of
	// their own, so that a line of names costs no more than its length.
	assigned      = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_.-]*)\\?["']?(?:\s*:\s*|\s?=\s?)\\?`)
	assignedValue = regexp.MustCompile(`^(?:"[^"]*"?|'[^']*'?|(?:Bearer|Basic|Token)\s+[^\s"']+|[^\s"'&;,]+)`)
	flagged       = regexp.MustCompile(`--?([A-Za-z][A-Za-z0-9_.-]*)\s+`)
	flaggedValue  = regexp.MustCompile(`^(?:"[^"]*"?|'[^']*'?|[^\s"'&;|-][^\s"'&;|]*)`)

	// scheme matches a header's authentication.
	scheme = regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)([A-Za-z0-9._~+/=-]{8,})`)

	// userinfo matches the name and password of a URL.
	userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s/?#:@"']*:)[^\s/?#"']*@`)

	loginHex = regexp.MustCompile(`(\blogin\s+)[0-9a-f]{32,}\b`)
	longHex  = regexp.MustCompile(`^[0-9a-f]{32,}$`)

	// known matches the keys of services that mark them.
	known = regexp.MustCompile(`\b(?:` + strings.Join([]string{
		`(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}`,
		`hf_[A-Za-z0-9]{16,}`,
		`gh[pousr]_[A-Za-z0-9]{16,}`,
		`github_pat_[A-Za-z0-9_]{16,}`,
		`glpat-[A-Za-z0-9_-]{16,}`,
		`sk-[A-Za-z0-9_-]{16,}`,
		`[sr]k_(?:live|test)_[A-Za-z0-9]{16,}`,
		`AIza[A-Za-z0-9_-]{30,}`,
		`ya29\.[A-Za-z0-9_-]{16,}`,
		`nvapi-[A-Za-z0-9_-]{16,}`,
		`xox[a-z]-[A-Za-z0-9-]{10,}`,
		`npm_[A-Za-z0-9]{30,}`,
		`pypi-[A-Za-z0-9_-]{30,}`,
		`dckr_pat_[A-Za-z0-9_-]{16,}`,
		`wandb_v1_[A-Za-z0-9_-]{16,}`,
		`SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`,
		`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`,
	}, "|") + `)`)

	pem = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)

	// run matches what may be a random string.
	run  = regexp.MustCompile(`[A-Za-z0-9+/_-]{32,}={0,2}`)
	uuid = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
)

// The lengths of the shortest of the keys that known matches, and of run.
const (
	shortestKey = 15
	shortestRun = 32
)

// text redacts the secrets within a text. It looks for each kind only where it
// can be: a command line may have thousands of arguments, and the job waits.
func text(s string) string {
	if strings.Contains(s, "-----BEGIN") {
		s = pem.ReplaceAllString(s, Mark)
	}
	if strings.Contains(s, "://") {
		s = userinfo.ReplaceAllString(s, "${1}"+Mark+"@")
	}
	spaced := strings.ContainsAny(s, " \t\n\r\f\v")
	if spaced {
		s = scheme.ReplaceAllString(s, "${1}"+Mark)
		s = loginHex.ReplaceAllString(s, "${1}"+Mark)
	}
	if strings.ContainsAny(s, "=:") {
		s = replaceNamed(s, assigned, assignedValue)
	}
	if spaced {
		s = replaceNamed(s, flagged, flaggedValue)
	}
	if len(s) >= shortestKey {
		s = known.ReplaceAllString(s, Mark)
	}
	if len(s) < shortestRun {
		return s
	}
	return run.ReplaceAllStringFunc(s, func(r string) string {
		if random(r) {
			return Mark
		}
		return r
	})
}

// replaceNamed replaces the values that follow names that say secret. It goes
// on behind other names: their value may hold another pair.
func replaceNamed(s string, names, values *regexp.Regexp) string {
	var b strings.Builder
	for {
		m := names.FindStringSubmatchIndex(s)
		if m == nil {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:m[1]])
		name := s[m[2]:m[3]]
		s = s[m[1]:]
		if !Secret(name) || strings.HasPrefix(s, "//") { // key://host is no value
			continue
		}
		if value := values.FindString(s); value != "" {
			b.WriteString(quoted(value))
			s = s[len(value):]
		}
	}
}

// quoted returns the mark in the quotes of the value that it stands for.
func quoted(value string) string {
	q := value[:1]
	if q != `"` && q != "'" {
		return Mark
	}
	if len(value) > 1 && strings.HasSuffix(value, q) {
		return q + Mark + q
	}
	return q + Mark
}

// Words that make a name secret, and the longer ones that do at the end of a
// word too.
var (
	secretWords = []string{
		"key", "token", "secret", "password", "passwd", "passphrase", "pass", "pwd",
		"credential", "credentials", "cred", "creds", "auth", "authorization", "bearer", "secrets", "passwords",
	}
	secretEnds = []string{
		"token", "secret", "password", "passwd", "passphrase", "credential", "credentials",
		"apikey", "accesskey", "secretkey", "privatekey", "authkey",
	}
	// harmlessEnds are the last words of names that speak of a secret's
	// place or number, or of keys and tokens of another kind.
	harmlessEnds = []string{
		"file", "path", "dir", "name", "id", "ids", "type", "size", "count", "num", "number", "len", "length",
		"limit", "budget", "heads", "head", "dim", "dims", "layers", "per", "sec", "second", "prob", "ratio", "loss",
		"dropping", "mixing", "drop", "eos", "bos", "pad",
	}
)

// Secret reports whether a name says that its value is a secret.
func Secret(name string) bool {
	if name == "PWD" || name == "OLDPWD" {
		return false // the working directory
	}
	ws := words(name)
	if len(ws) == 0 || slices.Contains(harmlessEnds, ws[len(ws)-1]) && !slices.Contains(ws, "secret") && !slices.Contains(ws, "password") {
		return false
	}
	return slices.ContainsFunc(ws, func(w string) bool {
		return slices.Contains(secretWords, w) ||
			slices.ContainsFunc(secretEnds, func(e string) bool { return strings.HasSuffix(w, e) })
	})
}

// words divides a name at punctuation, at digits and where a capital follows a
// small letter, and returns the words in small letters.
func words(name string) []string {
	var ws []string
	var w []rune
	flush := func() {
		if len(w) > 0 {
			ws = append(ws, strings.ToLower(string(w)))
			w = w[:0]
		}
	}
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c):
			flush()
			continue
		case unicode.IsUpper(c) && len(w) > 0 && unicode.IsLower(w[len(w)-1]):
			flush()
		}
		w = append(w, c)
	}
	flush()
	return ws
}

// awsSecret is the length of the secret half of an AWS key, which nothing marks.
const awsSecret = 40

// random reports whether a run of letters and digits looks drawn by chance.
// Words, paths and identifiers change between capitals, small letters and
// digits seldom; hexadecimal numbers, which name commits, digests and devices,
// have letters of one case.
func random(r string) bool {
	if uuid.MatchString(r) {
		return false
	}
	var kinds [3]int
	var counts [128]int
	changes, pairs, last := 0, 0, -1
	for i := range len(r) {
		c := r[i]
		kind := 0
		switch {
		case c >= 'A' && c <= 'Z':
		case c >= 'a' && c <= 'z':
			kind = 1
		case c >= '0' && c <= '9':
			kind = 2
		default:
			last = -1
			continue
		}
		kinds[kind]++
		counts[c]++
		if last >= 0 {
			pairs++
			if last != kind {
				changes++
			}
		}
		last = kind
	}
	n := kinds[0] + kinds[1] + kinds[2]
	if n < 28 || kinds[0] < 4 || kinds[1] < 4 || kinds[2] < 1 {
		return false
	}
	entropy := 0.0
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(n)
			entropy -= p * math.Log2(p)
		}
	}
	if len(strings.TrimRight(r, "=")) == awsSecret && r[0] != '/' && kinds[0] >= 8 && kinds[1] >= 8 && entropy >= 4.2 {
		return true
	}
	return kinds[2] >= 2 && changes*100 >= pairs*35 && entropy >= 3.9
}
