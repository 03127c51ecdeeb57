package main

import (
	"errors"
	"strings"

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

// inWords is an error in one line, but for a scenario file's: a line for each thing that
// is wrong in it.
func inWords(err error) string {
	var file *scenario.Errors
	if errors.As(err, &file) {
		return err.Error()
	}
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
