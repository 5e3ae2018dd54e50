package redact

import (
	"slices"
	"strings"
	"testing"
)

// The secrets below are made up and put together here, so that no scanner
// takes them for real ones.
var (
	hex40    = strings.Repeat("0123456789abcdef", 3)[:40]
	random40 = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
	hfKey    = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
	ghKey    = "ghp_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
	skKey    = "sk-" + "proj-AbCdEfGhIjKlMnOp0123"
	awsKey   = "AKIA" + "IOSFODNN7EXAMPLE"
	jwt      = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)

func TestArgs(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"flag with equals", []string{"--token=abc"}, []string{"--token=[redacted]"}},
		{"flag with value", []string{"--password", "hunter2", "x"}, []string{"--password", Mark, "x"}},
		{"go flag", []string{"-api-key=abc", "-authToken", "abc"}, []string{"-api-key=[redacted]", "-authToken", Mark}},
		{"value with spaces", []string{"--password=correct horse"}, []string{"--password=[redacted]"}},
		{"value with quotes", []string{`--secret=a"b'c`}, []string{"--secret=[redacted]"}},
		{"empty value", []string{"--token=", "x"}, []string{"--token=", "x"}},
		{"no value", []string{"--use-auth", "--lr", "1"}, []string{"--use-auth", "--lr", "1"}},
		{"assignment", []string{"env", "WANDB_API_KEY=" + hex40, "A=b"}, []string{"env", "WANDB_API_KEY=[redacted]", "A=b"}},
		{"assignment without underscore", []string{"PGPASSWORD=x", "apikey=x"}, []string{"PGPASSWORD=[redacted]", "apikey=[redacted]"}},
		{"hydra", []string{"+logger.wandb.api_key=abc", "model.lr=3"}, []string{"+logger.wandb.api_key=[redacted]", "model.lr=3"}},
		{"shell", []string{"bash", "-c", "export HF_TOKEN=abc; MYSQL_PWD='a b' run --lr 3 --db-password foo x"}, []string{"bash", "-c", "export HF_TOKEN=[redacted]; MYSQL_PWD='[redacted]' run --lr 3 --db-password [redacted] x"}},
		{"docker", []string{"-e", "TOKEN=abc", "--env=TOKEN=abc"}, []string{"-e", "TOKEN=[redacted]", "--env=TOKEN=[redacted]"}},
		{"json", []string{`{"api_key": "a b", "lr": 3}`, `{"secret":"x"}`}, []string{`{"api_key": "[redacted]", "lr": 3}`, `{"secret":"[redacted]"}`}},
		{"json in a shell", []string{`curl -d "{\"token\": \"abc\"}"`}, []string{`curl -d "{\"token\": \"[redacted]"}"`}},
		{"header", []string{"-H", "Authorization: Bearer abc.def-ghi"}, []string{"-H", "Authorization: [redacted]"}},
		{"header of another name", []string{"-H", "X-Api-Key: abc"}, []string{"-H", "X-Api-Key: [redacted]"}},
		{"bearer alone", []string{"say bearer abcdefgh1234"}, []string{"say bearer [redacted]"}},
		{"url", []string{"https://user:pa:ss@host:80/x?y"}, []string{"https://user:[redacted]@host:80/x?y"}},
		{"url in a text", []string{"git clone https://oauth2:abc@host/x"}, []string{"git clone https://oauth2:[redacted]@host/x"}},
		{"url query", []string{"http://host/x?access_token=abc&y=1"}, []string{"http://host/x?access_token=[redacted]&y=1"}},
		{"url without password", []string{"http://host:80/a@b", "ssh://git@host/x"}, []string{"http://host:80/a@b", "ssh://git@host/x"}},
		{"known looks", []string{hfKey, "x" + "/" + ghKey, skKey, awsKey, jwt}, []string{Mark, "x/" + Mark, Mark, Mark, Mark}},
		{"random looks", []string{random40, "--x=" + random40}, []string{Mark, "--x=" + Mark}},
		{"pem", []string{"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"}, []string{Mark}},
		{"login", []string{"wandb", "login", hex40}, []string{"wandb", "login", Mark}},
		{"login in a shell", []string{"wandb login " + hex40 + " && x"}, []string{"wandb login [redacted] && x"}},

		{"nothing", nil, []string{}},
		{"words that only begin like one", []string{"--tokenizer", "gpt2", "--tokenizer-model=a", "TOKENIZERS_PARALLELISM=false"}, []string{"--tokenizer", "gpt2", "--tokenizer-model=a", "TOKENIZERS_PARALLELISM=false"}},
		{"counts", []string{"--max-tokens", "2048", "--num-key-value-heads=8", "--pad-token-id", "0", "max_tokens=1"}, []string{"--max-tokens", "2048", "--num-key-value-heads=8", "--pad-token-id", "0", "max_tokens=1"}},
		{"places", []string{"--key-file", "/etc/x", "PWD=/home/x"}, []string{"--key-file", "/etc/x", "PWD=/home/x"}},
		{"one letter is ambiguous", []string{"-p", "8080", "-k", "x"}, []string{"-p", "8080", "-k", "x"}},
		{"digests and devices", []string{hex40, "GPU-5c3a1b2d-1234-5678-9abc-0123456789ab", "MIG-GPU-5c3a1b2d-1234-5678-9abc-0123456789ab/1/0"}, []string{hex40, "GPU-5c3a1b2d-1234-5678-9abc-0123456789ab", "MIG-GPU-5c3a1b2d-1234-5678-9abc-0123456789ab/1/0"}},
		{"paths", []string{"/scratch/Users/somebody/Experiments2024/LlamaForCausalLM/checkpoint_0001000/ModelStates"}, []string{"/scratch/Users/somebody/Experiments2024/LlamaForCausalLM/checkpoint_0001000/ModelStates"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.args)
			got := Args(tt.args)
			if !slices.Equal(got, tt.want) {
				t.Errorf("Args(%q)\n got %q\nwant %q", tt.args, got, tt.want)
			}
			if again := Args(got); !slices.Equal(again, got) {
				t.Errorf("again %q", again)
			}
			if !slices.Equal(tt.args, before) {
				t.Error("Args changed its argument")
			}
		})
	}
}

func TestEnv(t *testing.T) {
	tests := []struct {
		name, value, want string
		ok                bool
	}{
		{"NCCL_DEBUG", "INFO", "INFO", true},
		{"NCCL_X", "http://u:p@host", "http://u:[redacted]@host", true},
		{"CUDA_VISIBLE_DEVICES", "GPU-5c3a1b2d-1234-5678-9abc-0123456789ab", "GPU-5c3a1b2d-1234-5678-9abc-0123456789ab", true},
		{"NCCL_Y", hfKey, Mark, true},
		{"NCCL_Z", "token=abc", "token=[redacted]", true},
		{"NCCL_API_KEY", "x", "", false},
		{"OMP_TOKENS", "x", "", false},
		{"nccl_secret", "x", "", false},
		{"X_PASSPHRASE", "x", "", false},
		{"MYSQL_PWD", "x", "", false},
		{"CREDS", "x", "", false},
		{"XAUTHORITY", "x", "", false},
	}
	for _, tt := range tests {
		if got, ok := Env(tt.name, tt.value); got != tt.want || ok != tt.ok {
			t.Errorf("Env(%q, %q) = %q, %v; want %q, %v", tt.name, tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzArgs(f *testing.F) {
	for _, s := range []string{
		"--token\x00abc", "--password=a b", "A_KEY=b;c", `"token": "x`, "https://u:p@h/?key=v",
		"bearer abcdefghij", "login " + hex40, jwt, random40, "-----BEGIN PRIVATE KEY-----",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		args := strings.Split(s, "\x00")
		once := Args(args)
		if len(once) != len(args) {
			t.Fatalf("%d arguments became %d", len(args), len(once))
		}
		if twice := Args(once); !slices.Equal(once, twice) {
			t.Fatalf("not idempotent\n  of %q\nonce %q\ntwice %q", args, once, twice)
		}
		v, _ := Env("NCCL_X", s)
		if w, _ := Env("NCCL_X", v); w != v {
			t.Fatalf("Env is not idempotent: %q, %q", v, w)
		}
	})
}
