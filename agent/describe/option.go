package describe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// option is what follows one of QEMU's options, such as `tap,id=net0,ifname=tap0`, in order.
type option []field

// field is one word of an option: `id=net0`, or `tap`, which has no key, or no value.
type field struct {
	key, value string
	bare       bool // without "=": all of it is in key
}

// parse takes QEMU's own form, in which a comma of a value stands twice, or JSON, whose inner
// keys become such as file.filename.
func parse(word string) (option, error) {
	if strings.HasPrefix(word, "{") {
		var object map[string]any
		d := json.NewDecoder(strings.NewReader(word))
		d.UseNumber()
		if err := d.Decode(&object); err != nil {
			return nil, fmt.Errorf("%.60q: not JSON: %w", word, err)
		}
		return flatten("", object), nil
	}
	var o option
	for _, w := range splitCommas(word) {
		key, value, ok := strings.Cut(w, "=")
		o = append(o, field{key: key, value: value, bare: !ok})
	}
	return o, nil
}

// splitCommas splits at commas that stand alone, and takes one of each two that do not.
func splitCommas(word string) []string {
	const comma = "\x00" // no argument of a process has it
	words := strings.Split(strings.ReplaceAll(word, ",,", comma), ",")
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], comma, ",")
	}
	return words
}

// flatten writes an object's keys with their path, as QEMU's own form has them.
func flatten(prefix string, value any) option {
	var o option
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o = append(o, flatten(prefix+"."+key, v[key])...)
		}
		return o
	case []any:
		for i, inner := range v {
			o = append(o, flatten(fmt.Sprintf("%s.%d", prefix, i), inner)...)
		}
		return o
	case bool:
		value = "off"
		if v {
			value = "on"
		}
	case nil:
		return nil
	}
	return option{{key: strings.TrimPrefix(prefix, "."), value: fmt.Sprint(value)}}
}

func (o option) String() string {
	words := make([]string, len(o))
	for i, f := range o {
		words[i] = strings.ReplaceAll(f.key, ",", ",,")
		if !f.bare {
			words[i] += "=" + strings.ReplaceAll(f.value, ",", ",,")
		}
	}
	return strings.Join(words, ",")
}

// first is what stands first without a key, or has the key that is implied there.
func (o option) first(implied string) string {
	if len(o) > 0 && o[0].bare {
		return o[0].key
	}
	return o.get(implied)
}

// setFirst puts a value there.
func (o *option) setFirst(implied, value string) {
	if len(*o) > 0 && (*o)[0].bare {
		(*o)[0].key = value
		return
	}
	o.set(implied, value)
}

// get is a key's value, "" without it.
func (o option) get(key string) string {
	i := slices.IndexFunc(o, func(f field) bool { return f.key == key && !f.bare })
	if i < 0 {
		return ""
	}
	return o[i].value
}

// set changes a key's value, or adds it.
func (o *option) set(key, value string) {
	for i := range *o {
		if (*o)[i].key == key && !(*o)[i].bare {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, field{key: key, value: value})
}

// drop removes what has one of these keys, or is one of them.
func (o *option) drop(keys ...string) {
	*o = slices.DeleteFunc(*o, func(f field) bool { return slices.Contains(keys, f.key) })
}
