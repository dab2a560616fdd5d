package entity_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity"
)

func TestAskUntilAnswered(t *testing.T) {
	lost, ended := errors.New("connection reset"), entity.Errorf(entity.Forbidden, "the access was lost")
	refusal := entity.Errorf(entity.NotFound, "there is no workspace")
	unavailable := entity.Errorf(entity.Unavailable, "the partition moves")
	for name, test := range map[string]struct {
		answers []error // the last one is repeated
		calls   int
		want    error
	}{
		"answer":              {answers: []error{nil}, calls: 1},
		"answer_after_errors": {answers: []error{lost, unavailable, nil}, calls: 3},
		"refusal":             {answers: []error{lost, refusal}, calls: 2, want: refusal},
		"context_ends":        {answers: []error{lost}, want: lost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, ended)
				defer cancel()
				calls := 0
				err := entity.AskUntilAnswered(ctx, func() error {
					calls++
					return test.answers[min(calls, len(test.answers))-1]
				})
				if test.calls > 0 && calls != test.calls {
					t.Errorf("%d calls, want %d", calls, test.calls)
				}
				if !errors.Is(err, test.want) || entity.IsRefusal(err) != entity.IsRefusal(test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
			})
		})
	}
}
