package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"godwit/lab/scenario"
	"godwit/migration"
)

// Exit statuses (contract: the command line).
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error of the one who typed.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// errSaid is an end with status 1 of which everything has been said.
var errSaid = errors.New("said")

// statusOf is the exit status for an error. The one rule: 2 where the same words would not do the
// next time either, as they are no command's, name what is not there or is so already, or lack
// a right or a file that they need; nothing has begun then. 1 is everything else.
func statusOf(err error) int {
	if err == nil {
		return exitDone
	}
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	var problem *migration.Problem
	if errors.As(err, &problem) {
		switch problem.Code {
		case migration.CodeUsage, migration.CodeUnknownGuest, migration.CodeUnknownSite:
			return exitUsage
		}
	}
	return exitFailed
}

// codeFailed is the code of what the command itself could not do, and no agent has a code for.
const codeFailed migration.Code = "failed"

// codeOf is the code of an error, for programs (docs/report.md).
func codeOf(ctx context.Context, err error) migration.Code {
	var problem *migration.Problem
	switch {
	case errors.As(err, &problem):
		return problem.Code
	case statusOf(err) == exitUsage:
		return migration.CodeUsage
	case ctx.Err() != nil: // Ctrl-C
		return migration.CodeAsked
	}
	return codeFailed
}

// wantsJSON says whether --json was given, also after a word at which reading the line ended. After -- there are no flags.
func wantsJSON(c *cobra.Command, args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return asJSON(c) || slices.ContainsFunc(args, func(arg string) bool {
		value, given := strings.CutPrefix(arg, "--json=")
		yes, err := strconv.ParseBool(value)
		return arg == "--json" || given && err == nil && yes
	})
}

// output is the standard output of a command.
type output struct {
	io.Writer
	begun  bool  // something was printed
	stream bool  // it is lines for programs
	alone  bool  // nobody needs to read it, see outlivesReader
	failed error // of what could not be printed, the first
}

func (o *output) Write(p []byte) (int, error) {
	o.begun = true
	n, err := o.Writer.Write(p)
	switch {
	case err == nil:
		return n, nil
	case o.alone && errors.Is(err, syscall.EPIPE):
		return len(p), nil
	}
	err = fmt.Errorf("print the result: %w; send standard output elsewhere", err)
	o.failed = cmp.Or(o.failed, err)
	return n, err
}

// ended is the end of a command that ended with err: one whose result was not printed has failed, also where it did not
// look. A reader that went away, as head does, is not worth a word.
func (o *output) ended(err error) error {
	said := err == nil || errors.Is(err, errSaid)
	switch {
	case o.failed == nil:
		return err
	case errors.Is(o.failed, syscall.EPIPE) && (said || errors.Is(err, syscall.EPIPE)):
		return errSaid
	case errors.Is(o.failed, syscall.EPIPE), errors.Is(err, o.failed):
		return err
	case said:
		return o.failed
	}
	return errors.Join(err, o.failed)
}

// fail prints an error for programs: the one value of a command that has printed none, or the
// last line of a stream.
func (o *output) fail(code migration.Code, text string) {
	if o.begun && !o.stream {
		return
	}
	json.NewEncoder(o).Encode(map[string]migration.Problem{"error": {Code: code, Text: text}}) //nolint:errcheck // the status says it, too
}

// inWords is an error in one line, but for a scenario file's: a line for each thing that
// is wrong in it.
func inWords(err error) string {
	var file *scenario.Errors
	if errors.As(err, &file) {
		return err.Error()
	}
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
