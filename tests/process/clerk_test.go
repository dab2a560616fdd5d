package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
)

// clerk claims slugs and issues and revokes keys.
type clerk struct {
	site   *site
	random *rand.Rand
	client *client
	life   int
	number int

	// claimed and unsure are slugs; live and revoked are keys.
	claimed, unsure []string
	live, revoked   []issuedKey
}

func newClerk(s *site, r *rand.Rand) *clerk {
	return &clerk{site: s, random: r, client: newClient(s.node.address, s.key)}
}

func (c *clerk) work(until context.Context) {
	defer func() { c.client.close() }()
	for until.Err() == nil {
		if c.step() {
			continue
		}
		if !c.site.after(until, c.life) {
			return
		}
		c.client.close()
		var address string
		address, c.life = c.site.current()
		c.client = newClient(address, c.site.key)
	}
}

func (c *clerk) step() bool {
	switch n := c.random.IntN(10); {
	case n < 3:
		return c.claim()
	case n < 8 || len(c.live) == 0:
		return c.issue()
	default:
		return c.revoke()
	}
}

func (c *clerk) claim() bool {
	c.number++
	slug := fmt.Sprintf("place-%d", c.number)
	status, err := c.client.postJSON(context.Background(), "/v1/workspaces", map[string]string{"slug": slug, "name": slug}, nil)
	if err == nil && status == http.StatusCreated {
		c.claimed = append(c.claimed, slug)
		return true
	}
	c.unsure = append(c.unsure, slug)
	return err == nil
}

func (c *clerk) issue() bool {
	c.number++
	var key issuedKey
	status, err := c.client.postJSON(context.Background(), "/v1/user/api-keys", map[string]string{"name": fmt.Sprint(c.number)}, &key)
	if err != nil || status != http.StatusCreated {
		return err == nil
	}
	c.live = append(c.live, key)
	return true
}

// revoke forgets a key whose revocation was cut off.
func (c *clerk) revoke() bool {
	i := c.random.IntN(len(c.live))
	key := c.live[i]
	c.live = append(c.live[:i], c.live[i+1:]...)
	status, _, err := c.client.do(context.Background(), "DELETE", "/v1/user/api-keys/"+key.Record.ID, nil)
	if err != nil || status != http.StatusOK {
		return err == nil
	}
	c.revoked = append(c.revoked, key)
	return true
}

// judge holds what a client sees now against what the clerk was told.
func (c *clerk) judge(t *testing.T, address string) {
	t.Helper()
	owner := newClient(address, c.site.key)
	defer owner.close()
	for _, slug := range c.claimed {
		owner.expect(t, http.StatusOK, "GET", "/v1/ws/"+slug+"/file-activity/feed", "")
	}
	for _, slug := range c.unsure {
		c.judgeUnsure(t, owner, slug)
	}
	for _, key := range c.live {
		newClient(address, key.Key).expect(t, http.StatusOK, "GET", "/v1/whoami", "")
	}
	for _, key := range c.revoked {
		newClient(address, key.Key).expect(t, http.StatusUnauthorized, "GET", "/v1/whoami", "")
	}
	t.Logf("slugs: %d claimed, %d unsure; keys: %d live, %d revoked", len(c.claimed), len(c.unsure), len(c.live), len(c.revoked))
}

// A slug whose claim was cut off is either free, or has its workspace, whose making goes on after the start.
func (c *clerk) judgeUnsure(t *testing.T, owner *client, slug string) {
	t.Helper()
	status, err := owner.postJSON(t.Context(), "/v1/workspaces", map[string]string{"slug": slug, "name": slug}, nil)
	if err != nil || status != http.StatusCreated && status != http.StatusConflict {
		t.Fatalf("claiming %s again: %d %v", slug, status, err)
	}
	eventually(t, "the workspace of "+slug, func() bool {
		status, _, err := owner.do(t.Context(), "PUT", "/v1/ws/"+slug+"/drive/works.txt", []byte("it works"))
		return err == nil && status < http.StatusBadRequest
	})
}
