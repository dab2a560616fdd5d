package commandline

import (
	"encoding"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A value sets a field. It implements pflag.Value.
type value struct {
	target reflect.Value
	enum   []string
	isPath bool
	// isSet is set if the value is not the default.
	isSet bool
}

// Set implements pflag.Value: it sets the field, or adds to a list or map that was set before.
func (v *value) Set(text string) error {
	first := !v.isSet
	v.isSet = true
	switch {
	case v.target.Kind() == reflect.Map:
		return v.setEntry(text, first)
	case v.target.Kind() != reflect.Slice:
		return v.setOne(v.target, text)
	case text == "" && first:
		v.target.Set(reflect.MakeSlice(v.target.Type(), 0, 0))
		return nil
	case first:
		v.target.SetZero()
	}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			return fmt.Errorf("%q has an empty item", text)
		}
		item := reflect.New(v.target.Type().Elem()).Elem()
		if err := v.setOne(item, part); err != nil {
			return err
		}
		v.target.Set(reflect.Append(v.target, item))
	}
	return nil
}

func (v *value) setEntry(text string, first bool) error {
	name, content, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not NAME=VALUE", text)
	}
	if first || v.target.IsNil() {
		v.target.Set(reflect.MakeMap(v.target.Type()))
	}
	v.target.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(content))
	return nil
}

func (v *value) setOne(target reflect.Value, text string) error {
	if target.Kind() == reflect.Pointer {
		fresh := reflect.New(target.Type().Elem())
		if err := v.setOne(fresh.Elem(), text); err != nil {
			return err
		}
		target.Set(fresh)
		return nil
	}
	if v.enum != nil && !slices.Contains(v.enum, text) {
		quoted := make([]string, len(v.enum))
		for i, allowed := range v.enum {
			quoted[i] = strconv.Quote(allowed)
		}
		return fmt.Errorf("it must be one of %s, not %q", strings.Join(quoted, ", "), text)
	}
	switch to := target.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return to.UnmarshalText([]byte(text))
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration, such as 90s, 15m or 2h", text)
		}
		*to = d
		return nil
	}
	switch target.Kind() {
	case reflect.String:
		if v.isPath {
			text = absolute(text)
		}
		target.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		target.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, target.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number of %d bits", text, target.Type().Bits())
		}
		target.SetInt(n)
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number from 0", text)
		}
		target.SetUint(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		target.SetFloat(n)
	}
	return nil
}

// isSettable reports whether Set can set a field of a type.
func isSettable(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	switch t.Kind() {
	case reflect.Map:
		return t == reflect.TypeFor[map[string]string]()
	case reflect.Pointer, reflect.Slice:
		return isSettable(t.Elem())
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64, reflect.Float64:
		return true
	}
	return false
}

// String implements pflag.Value. Its result is not used: the help shows Setting.Default.
func (v *value) String() string { return "" }

// Type implements pflag.Value.
func (v *value) Type() string {
	if v.target.Kind() == reflect.Bool {
		return "bool" // pflag takes it for a flag without a value
	}
	return v.target.Type().String()
}

// absolute returns a path that does not depend on the working directory. The empty path stays, and - is the standard input.
func absolute(path string) string {
	if path == "" || path == "-" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if found, err := filepath.Abs(path); err == nil {
		return found
	}
	return path
}

// dashed returns the name of a flag for a field: acme-root for ACMERoot.
func dashed(field string) string {
	var b strings.Builder
	letters := []rune(field)
	for i, r := range letters {
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
