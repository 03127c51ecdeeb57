package detour

import (
	"reflect"
	"testing"

	"godwit/netstate"
)

// TestCopiesShareNothing: no field of a copy is a part of what it was copied of.
func TestCopiesShareNothing(t *testing.T) {
	d := &Detour{Sent: map[string][]netstate.Away{"m-00000001": {{}}}}
	of := reflect.ValueOf(d).Elem()
	for i := range of.NumField() {
		switch f := of.Field(i); {
		case f.Kind() == reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case f.Kind() == reflect.Map && f.Len() == 0:
			t.Errorf("%s: give it an entry above", of.Type().Field(i).Name)
		}
	}
	c := d.clone()
	if &c.Sent["m-00000001"][0] == &d.Sent["m-00000001"][0] {
		t.Error("what was sent is shared")
	}
	for i, copied := 0, reflect.ValueOf(c); i < of.NumField(); i++ {
		switch f := of.Field(i); f.Kind() {
		case reflect.Slice, reflect.Pointer, reflect.Map:
			if f.UnsafePointer() == copied.Field(i).UnsafePointer() {
				t.Errorf("%s is shared", of.Type().Field(i).Name)
			}
		}
	}
}
