package runnertest

import (
	"context"
	"strings"
	"sync"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
)

// Images has the images of sessions. It implements runner.Images. All methods may be called concurrently.
type Images struct {
	mu     sync.Mutex
	images map[string][]byte
}

// Put stores an image of a session.
func (i *Images) Put(sessionID string, sum, content []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.images == nil {
		i.images = map[string][]byte{}
	}
	i.images[session.ImageKey(sessionID, sum)] = content
}

// Count returns the number of the images of all sessions.
func (i *Images) Count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.images)
}

// ReadImage implements runner.Images.
func (i *Images) ReadImage(_ context.Context, _, sessionID string, sum []byte) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	content, has := i.images[session.ImageKey(sessionID, sum)]
	if !has {
		return nil, entity.Errorf(entity.NotFound, "no such image")
	}
	return content, nil
}

// RemoveImages implements runner.Images.
func (i *Images) RemoveImages(_ context.Context, _, sessionID string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key := range i.images {
		if strings.HasPrefix(key, session.Key(sessionID, "")) {
			delete(i.images, key)
		}
	}
	return nil
}
