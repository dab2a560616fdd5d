package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// WorkspaceID returns the id of the workspace with a number.
func WorkspaceID(i int) string { return fmt.Sprintf("ws_%022d", i) }

// workspaceCreator returns the id of the person who created the workspace with a number.
func workspaceCreator(i int) string { return fmt.Sprintf("usr_%022d", i/10) }

// use activates the workspaces with the numbers from..to-1: their computers run until the workspaces are passivated.
func (m *Member) use(from, to int) error {
	for i := from; i < to; i++ {
		_, err := m.Node.Router.Ask(context.Background(), entity.Command{
			Kind: entity.KindWorkspace, Identity: WorkspaceID(i), Principal: entity.Platform(), Message: &workspacev1.DescribeWorkspace{},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// observe waits for a number of sampling rounds, and returns the processor time that the process used in them and the number of
// computers that were sampled or checked. It fails if one of them was not found.
func (m *Member) observe(rounds int) (processor time.Duration, samples int, err error) {
	before, lost := m.sampled()
	used := processorTime()
	<-time.After(time.Duration(rounds) * m.SampleEvery)
	processor = processorTime() - used
	after, lostAfter := m.sampled()
	if lostAfter != lost {
		err = fmt.Errorf("%d computers could not be sampled", lostAfter-lost)
	}
	return processor, after - before, err
}

// quiet waits until a round has passed in which no idle computer was checked.
func (m *Member) quiet() error {
	for range 600 {
		if _, samples, err := m.observe(1); err != nil || samples == 0 {
			return err
		}
	}
	return errors.New("idle computers are checked without end")
}

// sampled returns the number of samples and checks so far, and of the failed ones.
func (m *Member) sampled() (all, failed int) {
	families, err := m.Registry.Gather()
	if err != nil {
		return 0, 0
	}
	for _, f := range families {
		if f.GetName() != "atelier_computer_samples_total" {
			continue
		}
		for _, counter := range f.GetMetric() {
			n := int(counter.GetCounter().GetValue())
			if all += n; counter.GetLabel()[0].GetValue() != "found" {
				failed += n
			}
		}
	}
	return all, failed
}
