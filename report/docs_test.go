package report

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gswarm/gswarm/analysis"
)

// generated is the line of docs/report.md below which the page is made of the
// types themselves.
const generated = "<!-- below: go test ./report -run TestReportPage -update -->\n"

// TestReportPage holds the description of the JSON against the types, and both
// against what is written: a field cannot come without its sentence.
func TestReportPage(t *testing.T) {
	const path = "../docs/report.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, have, found := strings.Cut(string(page), generated)
	if !found {
		t.Fatalf("%s has no line %s", path, generated)
	}
	want := fieldsPage(t)
	if *update {
		if err := os.WriteFile(path, []byte(head+generated+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(have, want); diff != "" {
		t.Errorf("docs/report.md is stale; run: go test ./report -run TestReportPage -update\n%s", diff)
	}
}

// fieldsPage describes Result and every type that it holds, in the order in
// which they are declared.
func fieldsPage(t *testing.T) string {
	t.Helper()
	decls := map[string]*ast.GenDecl{}
	var order []string
	for _, file := range []string{"result.go", "cause.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), "../analysis/"+file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			switch spec := g.Specs[0].(type) {
			case *ast.TypeSpec:
				decls[spec.Name.Name] = g
				order = append(order, spec.Name.Name)
			case *ast.ValueSpec:
				if id, ok := spec.Type.(*ast.Ident); ok {
					decls["values of "+id.Name] = g
				}
			}
		}
	}
	reached := map[string]bool{}
	reach(reflect.TypeFor[analysis.Result](), reached)
	var b strings.Builder
	for _, name := range order {
		if !reached[name] {
			continue
		}
		g := decls[name]
		spec := g.Specs[0].(*ast.TypeSpec)
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", name, sentenceOf(g.Doc, name))
		if s, ok := spec.Type.(*ast.StructType); ok {
			b.WriteString("\n| field | type | |\n|---|---|---|\n")
			fields(&b, s, decls)
			continue
		}
		b.WriteString("\n| value | |\n|---|---|\n")
		values := decls["values of "+name]
		if values == nil {
			t.Fatalf("%s has no values", name)
		}
		for _, v := range values.Specs {
			v := v.(*ast.ValueSpec)
			said := ""
			if v.Comment != nil {
				said = strings.TrimSpace(v.Comment.Text())
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`), said)
		}
	}
	return b.String()
}

// reach notes the named types that a type holds.
func reach(t reflect.Type, seen map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		reach(t.Elem(), seen)
		return
	case reflect.Map:
		reach(t.Key(), seen)
		reach(t.Elem(), seen)
		return
	}
	if !strings.HasSuffix(t.PkgPath(), "/analysis") || seen[t.Name()] {
		return
	}
	seen[t.Name()] = true
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			reach(t.Field(i).Type, seen)
		}
	}
}

// fields writes a row for each field; those of an embedded type stand among them.
// A comment that stands before a group of fields goes with the first.
func fields(b *strings.Builder, s *ast.StructType, decls map[string]*ast.GenDecl) {
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			embedded := decls[f.Type.(*ast.Ident).Name].Specs[0].(*ast.TypeSpec)
			fields(b, embedded.Type.(*ast.StructType), decls)
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		name, option, _ := strings.Cut(tag, ",")
		kind := typeText(f.Type)
		if option == "omitempty" {
			kind += ", or absent"
		}
		said := jsonNames(strings.TrimSpace(strings.ReplaceAll(f.Doc.Text()+f.Comment.Text(), "\n", " ")), s)
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, kind, strings.ReplaceAll(said, "|", "\\|"))
	}
}

// jsonNames puts the fields' names as JSON has them into a comment.
func jsonNames(said string, s *ast.StructType) string {
	for _, f := range s.Fields.List {
		for _, n := range f.Names {
			tag, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			said = regexp.MustCompile(`\b`+n.Name+`\b`).ReplaceAllString(said, "`"+tag+"`")
		}
	}
	return said
}

func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeText(e.X) + " or null"
	case *ast.ArrayType:
		return "list of " + typeText(e.Elt)
	case *ast.MapType:
		return "object of " + typeText(e.Value) + " by " + typeText(e.Key)
	case *ast.Ident:
		switch e.Name {
		case "int", "int64":
			return "integer"
		case "float64":
			return "number"
		case "bool":
			return "true or false"
		}
		return e.Name
	}
	return "?"
}

// sentenceOf is a doc comment without the name that it begins with.
func sentenceOf(doc *ast.CommentGroup, name string) string {
	text := strings.TrimSpace(strings.ReplaceAll(doc.Text(), "\n", " "))
	text = strings.TrimPrefix(text, name+" is ")
	return strings.ToUpper(text[:1]) + text[1:]
}
