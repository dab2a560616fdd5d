package session_test

import (
	"testing"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// TestModeOfChildren expects that a session that confirms admits only children that confirm.
func TestModeOfChildren(t *testing.T) {
	const auto, confirm = sessionv1.Mode_MODE_AUTO, sessionv1.Mode_MODE_CONFIRM
	for _, one := range []struct {
		parent, child sessionv1.Mode
		isRefused     bool
	}{
		{auto, auto, false}, {auto, confirm, false}, {confirm, confirm, false}, {confirm, auto, true},
		{confirm, sessionv1.Mode_MODE_UNSPECIFIED, true},
	} {
		w := newWorld(t)
		w.must(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "a"}, Mode: one.parent})
		admit := &sessionv1.AdmitChild{ChildId: child, Mode: one.child}
		if one.isRefused {
			w.refused(admit, entity.Forbidden)
		} else {
			w.must(admit)
		}
		if admitted := w.s.GetChildren() == 1; admitted == one.isRefused {
			t.Errorf("%v has admitted %v: %v", one.parent, one.child, admitted)
		}
	}
}
