// Package check says of every answer whether it is the expected one: a line "ok - what" or "not ok - what: why".
package check

import (
	"fmt"
	"os"
	"reflect"
	"strings"
)

var failed bool

// That is one answer that has to be as expected.
func That(what string, got, expected any) {
	if reflect.DeepEqual(got, expected) {
		fmt.Printf("ok - %s\n", what)
		return
	}
	failed = true
	fmt.Printf("not ok - %s: expected %s, got %s\n", what, short(expected), short(got))
}

// Done is a call that has to succeed.
func Done(what string, err error) {
	That(what, err, error(nil))
}

// Refused is a call that has to fail with this text.
func Refused(what string, err error, text string) {
	That(what, err != nil && strings.Contains(err.Error(), text), true)
	if err == nil || !strings.Contains(err.Error(), text) {
		fmt.Printf("# %v\n", err)
	}
}

// End leaves, with status 1 when an answer was wrong.
func End() {
	if failed {
		os.Exit(1)
	}
}

func short(value any) string {
	text := fmt.Sprintf("%#v", value)
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}
