// Renders a chart's templates as `helm template` does: Go's own templates, with the functions of
// the same library (sprig). Values come as JSON on standard input; each template's result goes out
// as one member of a JSON object.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
)

type values = map[string]interface{}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A line for each member, whose own content is JSON.
func toYaml(value interface{}) (string, error) {
	lines := []string{}
	add := func(prefix string, value interface{}) error {
		text, err := json.Marshal(value)
		lines = append(lines, prefix+string(text))
		return err
	}
	switch value := value.(type) {
	case values:
		for name, member := range value {
			if err := add(fmt.Sprintf("%q: ", name), member); err != nil {
				return "", err
			}
		}
		sort.Strings(lines)
	case []interface{}:
		for _, member := range value {
			if err := add("- ", member); err != nil {
				return "", err
			}
		}
	default:
		if err := add("", value); err != nil {
			return "", err
		}
	}
	return strings.Join(lines, "\n"), nil
}

// The chart's own files, as helm's `.Files` reads them.
type files struct{ folder string }

func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.folder, name))
	check(err)
	return string(text)
}

func main() {
	var data values
	check(json.NewDecoder(os.Stdin).Decode(&data))
	data["Files"] = files{os.Args[1]}
	charts := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := charts.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["toYaml"] = toYaml
	// No cluster: nothing is there yet.
	functions["lookup"] = func(version, kind, namespace, name string) values {
		return values{}
	}
	charts.Funcs(functions)
	templates, err := filepath.Glob(filepath.Join(os.Args[1], "templates", "*"))
	check(err)
	for _, file := range templates {
		text, err := os.ReadFile(file)
		check(err)
		_, err = charts.New(filepath.Base(file)).Parse(string(text))
		check(err)
	}
	rendered := map[string]string{}
	for _, file := range templates {
		var out bytes.Buffer
		name := filepath.Base(file)
		check(charts.ExecuteTemplate(&out, name, data))
		rendered[name] = out.String()
	}
	check(json.NewEncoder(os.Stdout).Encode(rendered))
}
