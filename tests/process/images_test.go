package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// inputWith returns the body of an input with an image of a size, and the image.
func inputWith(t *testing.T, field string, size int, seed byte) (body, image []byte) {
	t.Helper()
	image = append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{seed}, size-8)...)
	body, err := json.Marshal(map[string]any{field: "say seen", "images": []map[string]any{{"mediaType": "image/png", "data": image}}})
	if err != nil {
		t.Fatal(err)
	}
	return body, image
}

// folderSize returns the bytes of the files below a folder.
func folderSize(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if info, err := entry.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil // files of the journal may vanish
	})
	return size
}

var asJSON = []string{"Content-Type", "application/json"}

// TestImagesAreBoundedByTheQuota sends large images until the quota of the workspace is used up: further ones are refused before
// anything is written, others go on, and the journal has not grown by the images. The deletion of the sessions gives everything back.
func TestImagesAreBoundedByTheQuota(t *testing.T) {
	const quota, size = 6 << 20, 1 << 20
	n := start(t, filepath.Join(t.TempDir(), "data"), fmt.Sprint("--drive-quota=", quota), "--rate=0", "--address-rate=0")
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	journal := filepath.Join(n.dir, "journal")
	before := folderSize(journal)
	var sessions []string
	for accepted := byte(0); ; accepted++ {
		body, _ := inputWith(t, "prompt", size, accepted)
		status, answer, err := c.do(t.Context(), http.MethodPost, sessionsPath, body, asJSON...)
		if err != nil {
			t.Fatal(err)
		}
		if status != http.StatusCreated {
			if status != http.StatusInsufficientStorage || !strings.Contains(string(answer), "insufficient_storage") || accepted != 5 {
				t.Fatalf("image %d: %d %s", accepted, status, answer)
			}
			break
		}
		var made struct{ SessionID string }
		if err := json.Unmarshal(answer, &made); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, made.SessionID)
	}
	if grown := folderSize(journal) - before; grown > size {
		t.Errorf("the journal has grown by %d bytes", grown)
	}
	// The same session, and the drive, which have the same quota; and another person with another quota.
	small, _ := inputWith(t, "text", size, 200)
	c.expect(t, http.StatusInsufficientStorage, http.MethodPost, sessionsPath+"/"+sessions[0]+"/messages", string(small), asJSON...)
	c.expect(t, http.StatusOK, http.MethodPost, sessionsPath+"/"+sessions[0]+"/messages", `{"text":"say without"}`, asJSON...)
	c.expect(t, http.StatusInsufficientStorage, http.MethodPut, drivePath("file"), strings.Repeat("x", size))
	for _, id := range sessions {
		c.expect(t, http.StatusNoContent, http.MethodDelete, sessionsPath+"/"+id, "")
	}
	body, _ := inputWith(t, "prompt", size, 201)
	eventually(t, "the deletion has given the space back", func() bool {
		status, answer, err := c.do(t.Context(), http.MethodPost, sessionsPath, body, asJSON...)
		if err != nil || status != http.StatusCreated && status != http.StatusInsufficientStorage {
			t.Fatal(status, string(answer), err)
		}
		return status == http.StatusCreated
	})
	eventually(t, "the images are removed", func() bool { return len(imageFiles(t, n.dir)) == 1 })
}

// imageFiles returns the SHA-256 of the images of all sessions.
func imageFiles(t *testing.T, dir string) map[string]bool {
	t.Helper()
	return namesOf(t, filepath.Join(dir, "drives/*/images/*/*"), func(name string) string { return name })
}

// imageMarkers returns the SHA-256 of the images that have a marker.
func imageMarkers(t *testing.T, dir string) map[string]bool {
	t.Helper()
	return namesOf(t, filepath.Join(dir, "drives/*/tmp/*.image"), func(name string) string { return strings.Split(name, ".")[1] })
}

// namesOf returns the results of part for the names of the files of a pattern.
func namesOf(t *testing.T, pattern string, part func(name string) string) map[string]bool {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, path := range found {
		names[part(filepath.Base(path))] = true
	}
	return names
}

// TestKillWithImages kills the node while clients send images, and leaves one image as a kill between its file and its input does. Each
// input in the timeline has its image, with the right bytes, and each image without an input has a marker. The marker lets the node remove
// the image minutes later (TestImagesAfterACrash of package drive).
func TestKillWithImages(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"), killSettings...)
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	var made struct{ SessionID string }
	if status, err := c.postJSON(t.Context(), sessionsPath, map[string]string{"prompt": "say hello"}, &made); err != nil || status != http.StatusCreated {
		t.Fatal(status, err)
	}
	const clients = 4
	size, sums := 10_000, map[int]string{} // by the size, which the timeline has
	for round := range 2 {
		accepted := make(chan int, 1000)
		var sending sync.WaitGroup
		for range clients {
			next := size
			size += 100
			var all [][]byte
			for i := range 50 {
				body, image := inputWith(t, "text", next+i, 1)
				sum := sha256.Sum256(image)
				sums[next+i], all = hex.EncodeToString(sum[:]), append(all, body)
			}
			sending.Go(func() {
				own := newClient(n.address, key)
				defer own.close()
				for i, body := range all {
					status, _, err := own.do(context.Background(), http.MethodPost, sessionsPath+"/"+made.SessionID+"/messages", body, asJSON...)
					if err != nil {
						return
					}
					if status == http.StatusOK {
						accepted <- next + i
					}
				}
			})
		}
		eventually(t, "some inputs are accepted", func() bool { return len(accepted) >= 2*clients })
		n.kill()
		sending.Wait()
		close(accepted)
		var acknowledged []int
		for size := range accepted {
			acknowledged = append(acknowledged, size)
		}
		orphan := leaveOrphan(t, n.dir, made.SessionID, fmt.Sprint("orphan ", round))
		n = start(t, n.dir, killSettings...)
		c = newClient(n.address, key)
		inputs := imagesIn(t, c, made.SessionID)
		for _, size := range acknowledged {
			if !inputs[size] {
				t.Errorf("an accepted input with an image of %d bytes is not in the timeline", size)
			}
		}
		c.expect(t, http.StatusMultiStatus, "PROPFIND", drivePath(""), "", "Depth", "0") // opens the drive, which is swept
		markers, named := imageMarkers(t, n.dir), map[string]bool{}
		for size := range inputs {
			named[sums[size]] = true
		}
		for sum := range imageFiles(t, n.dir) {
			if !named[sum] && !markers[sum] {
				t.Errorf("the image %s has neither an input nor a marker", sum)
			}
		}
		if !markers[orphan] {
			t.Error("the marker of an image without an input is gone before the outcome can be known")
		}
		for size := range inputs {
			content, err := os.ReadFile(oneFile(t, n.dir, "drives/*/images/"+made.SessionID+"/"+sums[size]))
			if sum := sha256.Sum256(content); err != nil || hex.EncodeToString(sum[:]) != sums[size] {
				t.Errorf("the image of %d bytes has %d: %v", size, len(content), err)
			}
		}
	}
}

// oneFile returns the path of the only file of a pattern below a folder.
func oneFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// leaveOrphan leaves an image of a session and its marker, and returns the SHA-256.
func leaveOrphan(t *testing.T, dir, sessionID, content string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	name := hex.EncodeToString(sum[:])
	marker := filepath.Join(oneFile(t, dir, "drives/*/tmp"), sessionID+"."+name+".image")
	if err := os.WriteFile(marker, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(marker, filepath.Join(oneFile(t, dir, "drives/*/images"), sessionID, name)); err != nil {
		t.Fatal(err)
	}
	return name
}

// imagesIn returns the sizes of the images in the timeline of a session.
func imagesIn(t *testing.T, c *client, sessionID string) map[int]bool {
	t.Helper()
	sizes := map[int]bool{}
	for cursor := ""; ; {
		var page struct {
			Items []struct {
				Images []struct{ Size int }
			}
			NextCursor string
		}
		answer := c.expect(t, http.StatusOK, http.MethodGet, sessionsPath+"/"+sessionID+"/history?limit=100"+cursor, "")
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Items {
			for _, image := range row.Images {
				sizes[image.Size] = true
			}
		}
		if page.NextCursor == "" {
			return sizes
		}
		cursor = "&cursor=" + page.NextCursor
	}
}
