package builtin

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
)

const (
	// joining is how long a part of a text waits for more.
	joining = 40 * time.Millisecond
	// A text of longestPart bytes or more does not wait.
	longestPart = 4 << 10
)

// updates sends the updates of a turn in their order. Parts of a text that arrive within a short time are sent as one: the
// client's library closes a connection with too many updates that it has not handled.
type updates struct {
	session acp.SessionId
	client  client

	lock      sync.Mutex
	text      strings.Builder
	isThought bool
	timer     *time.Timer
	// isText is set if the last update was a text of the agent's.
	isText bool
}

// addText adds a part of the agent's message, or of its thoughts.
func (u *updates) addText(text string, isThought bool) {
	if text == "" {
		return
	}
	u.lock.Lock()
	defer u.lock.Unlock()
	if isThought != u.isThought {
		u.flush()
		u.isThought = isThought
	}
	u.text.WriteString(text)
	if u.text.Len() >= longestPart {
		u.flush()
		return
	}
	if u.timer == nil {
		u.timer = time.AfterFunc(joining, func() {
			u.lock.Lock()
			defer u.lock.Unlock()
			u.flush()
		})
	}
}

// say adds a whole text, as a paragraph of its own.
func (u *updates) say(text string) {
	u.lock.Lock()
	follows := (u.isText || u.text.Len() > 0) && !u.isThought
	u.lock.Unlock()
	if follows {
		text = "\n\n" + text
	}
	u.addText(text, false)
}

// send sends an update, after the texts before it.
func (u *updates) send(update acp.SessionUpdate) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.flush()
	u.isText = false
	u.write(update, nil)
}

// end sends the text that was not sent yet.
func (u *updates) end() {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.flush()
}

// flush sends the text. The caller holds the lock.
func (u *updates) flush() {
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
	if u.text.Len() == 0 {
		return
	}
	text := u.text.String()
	u.text.Reset()
	u.isText = !u.isThought
	if u.isThought {
		u.write(acp.UpdateAgentThoughtText(text), nil)
		return
	}
	u.write(acp.UpdateAgentMessageText(text), nil)
}

// write sends one update. It is not bound to the turn's context: the end of a cancelled command is an update, too. An error
// means that the client has gone, which ends the turn by its context.
func (u *updates) write(update acp.SessionUpdate, values map[string]any) {
	_ = u.client.SessionUpdate(context.Background(), acp.SessionNotification{SessionId: u.session, Update: update, Meta: values})
}

// annotate sends a value of _meta, after the texts before it, with an update that changes nothing.
func (u *updates) annotate(key string, value any) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.flush()
	u.write(acp.SessionUpdate{SessionInfoUpdate: &acp.SessionSessionInfoUpdate{}}, map[string]any{key: value})
}
