package entity

import (
	"maps"
	"reflect"

	"google.golang.org/protobuf/proto"
)

// The functions in this file let Evolve build the next state without changing the previous one. The states share all
// values that the event does not change, so the cost of an event does not grow with the size of the state.

// ShallowCopy returns a copy of a message that shares its nested messages, lists and maps with the original. The caller may
// set fields of the copy, but must replace shared values and not change them. The copy of a nil message is empty. Unknown
// fields are not copied.
func ShallowCopy[M proto.Message](m M) M {
	original := reflect.ValueOf(m)
	next := reflect.New(original.Type().Elem())
	if original.IsNil() {
		return next.Interface().(M)
	}
	for i := range next.Elem().NumField() {
		// The fields that cannot be set are unexported and belong to the protobuf runtime.
		if field := next.Elem().Field(i); field.CanSet() {
			field.Set(original.Elem().Field(i))
		}
	}
	return next.Interface().(M)
}

// With returns a copy of a map in which key has the given value.
func With[V any](all map[string]V, key string, value V) map[string]V {
	next := make(map[string]V, len(all)+1)
	maps.Copy(next, all)
	next[key] = value
	return next
}

// Without returns a copy of a map without the given keys.
func Without[V any](all map[string]V, keys ...string) map[string]V {
	next := maps.Clone(all)
	for _, key := range keys {
		delete(next, key)
	}
	return next
}

// WithChanged returns a copy of a map in which change has been applied to a shallow copy of the message under key. It
// returns the map itself if the key is absent.
func WithChanged[V proto.Message](all map[string]V, key string, change func(V)) map[string]V {
	message, found := all[key]
	if !found {
		return all
	}
	message = ShallowCopy(message)
	change(message)
	return With(all, key, message)
}
