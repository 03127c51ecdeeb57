package hook

import (
	"fmt"
	"net/url"
	"time"

	"godwit/migration"
)

// Config says which hooks there are besides subscribers.
type Config struct {
	// Dir has a directory EVENT.d for each event; its executables are the event's hooks,
	// in the order of their names.
	Dir   string `yaml:"dir,omitempty"`
	Files []File `yaml:"files,omitempty"` // what is not the default of executables, by name
	HTTP  []HTTP `yaml:"http,omitempty"`
}

// File is how executables of one name are treated, in whichever EVENT.d they are.
type File struct {
	Name      string        `yaml:"name"`
	Timeout   time.Duration `yaml:"timeout,omitempty"`
	OnFailure string        `yaml:"on_failure,omitempty"`
}

// HTTP is a call by POST with the JSON as body; any answer but 2xx is a failure.
type HTTP struct {
	URL       string                `yaml:"url"`
	Events    []migration.EventName `yaml:"events"`
	Timeout   time.Duration         `yaml:"timeout,omitempty"`
	OnFailure string                `yaml:"on_failure,omitempty"`
}

// Check says what cannot be meant, in words of the configuration.
func (c Config) Check() error {
	names := map[string]bool{}
	for i, f := range c.Files {
		where := fmt.Sprintf("hooks.files[%d]", i)
		switch {
		case f.Name == "":
			return fmt.Errorf("%s: its name is missing", where)
		case names[f.Name]:
			return fmt.Errorf("%s: name %s is used twice", where, f.Name)
		}
		names[f.Name] = true
		if err := checkPolicy(f.Timeout, f.OnFailure); err != nil {
			return fmt.Errorf("%s %s: %w", where, f.Name, err)
		}
	}
	for i, h := range c.HTTP {
		where := fmt.Sprintf("hooks.http[%d]", i)
		u, err := url.Parse(h.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%s: url %q; such as http://127.0.0.1:8080/godwit", where, h.URL)
		}
		if err := checkEvents(h.Events); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if err := checkPolicy(h.Timeout, h.OnFailure); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	return nil
}

func checkPolicy(timeout time.Duration, onFailure string) error {
	if timeout < 0 || timeout > MostTimeout || timeout > 0 && timeout < time.Millisecond {
		return fmt.Errorf("timeout of %v; between 1ms and %v", timeout, MostTimeout)
	}
	switch onFailure {
	case "", Abort, Continue:
		return nil
	}
	return fmt.Errorf("on_failure %q is unknown; allowed: %s, %s", onFailure, Abort, Continue)
}

func checkEvents(events []migration.EventName) error {
	if len(events) == 0 {
		return fmt.Errorf("it names no events")
	}
	for _, e := range events {
		if _, ok := migration.MomentOf(e); !ok {
			return fmt.Errorf("event %q is unknown; see docs/hooks.md", e)
		}
	}
	return nil
}
