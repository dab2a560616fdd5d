package drive

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// TestImagesWaitForDescriptorsFirst has an input and a deletion wait for the images of a session, while other drives take the descriptors
// that are left and wait for more. Neither the input nor the deletion waits for the other until a timeout.
func TestImagesWaitForDescriptorsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drives := manyDrives(t, 5, MinDescriptors)
		content := []byte("image")
		sum := sha256.Sum256(content)
		keep := func(commit func() error) error {
			return drives.KeepImages(context.Background(), "ws_0", "ses_1", map[string][]byte{string(sum[:]): content}, commit)
		}
		removed, kept, done := make(chan error, 1), make(chan error, 1), make(chan struct{})
		var openers sync.WaitGroup
		defer openers.Wait()
		defer close(done)
		err := keep(func() error {
			go func() { removed <- drives.RemoveImages(context.Background(), "ws_0", "ses_1") }()
			synctest.Wait()
			go func() { kept <- keep(func() error { return nil }) }()
			synctest.Wait()
			for i := range 4 {
				openers.Go(func() {
					if _, release, err := drives.Open(context.Background(), fmt.Sprintf("ws_%d", 1+i)); err == nil {
						<-done
						release()
					}
				})
				synctest.Wait()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-removed; err != nil {
			t.Errorf("the deletion: %v", err)
		}
		if err := <-kept; err != nil {
			t.Errorf("the input: %v", err)
		}
	})
}
