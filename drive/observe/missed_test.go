package observe

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// loseEvents runs a script and loses its events, as a queue of the kernel that is too long does.
func (s *shell) loseEvents(script string) {
	s.node.t.Helper()
	r := s.watch.reader
	isBusy, release, lost := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	requested := r.do(func() {
		close(isBusy)
		<-release
		lost <- r.reset()
	})
	if requested != nil {
		s.node.t.Fatal(requested)
	}
	<-isBusy
	s.run(script)
	close(release)
	if err := <-lost; err != nil {
		s.node.t.Fatal(err)
	}
}

// TestMissedRemovalInFolderThatChanges loses the event of a removal in a folder that changes again after the scan has begun, for example
// by an upload. The removal has one row nevertheless, and so has a removal during the scan. The event of
// that removal is not lost.
func TestMissedRemovalInFolderThatChanges(t *testing.T) {
	n := newNode(t, Options{window: time.Millisecond})
	s := n.start(session)
	s.run("echo a >a; echo b >b; echo c >c")
	n.awaitRows(3)
	var once sync.Once
	n.activity.Fail(func(m proto.Message, _ bool) error {
		if _, ok := m.(*activityv1.ReadNames); ok {
			once.Do(func() { s.run("rm b") })
		}
		return nil
	})
	// The time of the folder is the time of a change after the scan.
	s.loseEvents("rm a; touch -d '1 hour' .")
	n.awaitRows(5)
	s.end()
	n.expectSameTree()
	n.expect("session:ses_1 create a", "session:ses_1 create b", "session:ses_1 create c", "session:ses_1 delete b", "session:ses_1 delete a")
}
