package session

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// TestShallowCopies verifies that a field of Session or Input that is added later is copied, too.
func TestShallowCopies(t *testing.T) {
	testCopy(t, &sessionv1.Session{}, shallowCopy)
	testCopy(t, &sessionv1.Input{}, shallowCopyOfInput)
}

// testCopy fills a message and compares its copy with the copy of entity.ShallowCopy.
func testCopy[M proto.Message](t *testing.T, m M, shallow func(M) M) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		switch field := v.Field(i); {
		case !field.CanSet(): // belongs to the protobuf runtime
		case field.Kind() == reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case field.Kind() == reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case field.Kind() == reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		case field.Kind() == reflect.String:
			field.SetString("x")
		case field.Kind() == reflect.Bool:
			field.SetBool(true)
		case field.CanInt():
			field.SetInt(1)
		case field.CanUint():
			field.SetUint(1)
		default:
			t.Fatalf("the test does not know the type of %s", v.Type().Field(i).Name)
		}
	}
	got, want := reflect.ValueOf(shallow(m)).Elem(), reflect.ValueOf(entity.ShallowCopy(m)).Elem()
	for i := range v.NumField() {
		if v.Field(i).CanSet() && !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
			t.Errorf("%s.%s is not copied", v.Type().Name(), v.Type().Field(i).Name)
		}
	}
}
