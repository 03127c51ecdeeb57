package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"godwit/internal/units"
)

// Values of flags, which take what scenario files take for the same.

// durationValue is a time with its unit, such as 300ms.
type durationValue time.Duration

func (d *durationValue) String() string { return time.Duration(*d).String() }

func (d *durationValue) Type() string { return "duration" }

func (d *durationValue) Set(text string) error {
	v, err := units.Duration(text)
	if err != nil {
		return fmt.Errorf("%w; such as 300ms", err)
	}
	*d = durationValue(v)
	return nil
}

// percentValue is a whole number of percent, with its sign or without: 90, 90%.
type percentValue int

func (p *percentValue) String() string { return strconv.Itoa(int(*p)) }

func (p *percentValue) Type() string { return "percent" }

func (p *percentValue) Set(text string) error {
	v, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil {
		return errors.New("not a whole number of percent; such as 80%")
	}
	*p = percentValue(v)
	return nil
}

// notRead is what Go's library says of a flag's value that it cannot read.
var notRead = regexp.MustCompile(`strconv\.Parse(Int|Uint|Bool): parsing ".*": (invalid syntax|value out of range)`)

// readable says the same for whoever typed it.
func readable(err error) error {
	found := notRead.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	word := map[string]string{"Int": "not a whole number", "Uint": "not a whole number from 0 on", "Bool": "neither true nor false"}[found[1]]
	if found[2] == "value out of range" {
		word = "too large"
		if strings.Contains(found[0], `parsing "-`) {
			word = "too small"
		}
	}
	return errors.New(strings.Replace(err.Error(), found[0], word, 1))
}
