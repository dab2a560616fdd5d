package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
)

// An accountWorker creates workspaces and issues and revokes keys while the node is killed.
type accountWorker struct {
	site   *site
	random *rand.Rand
	client *client
	number int

	// claimed has the slugs of created workspaces. unsure has the slugs of requests with an unknown outcome.
	claimed, unsure []string
	// live has the valid keys, revoked the revoked ones.
	live, revoked []issuedKey
}

func newAccountWorker(s *site, r *rand.Rand) *accountWorker {
	return &accountWorker{site: s, random: r, client: newClient(s.node.address, s.key)}
}

func (c *accountWorker) work(until context.Context) {
	defer func() { c.client.close() }()
	c.site.runSteps(until, func(address string) {
		c.client.close()
		c.client = newClient(address, c.site.key)
	}, c.step)
}

func (c *accountWorker) step() bool {
	switch n := c.random.IntN(10); {
	case n < 3:
		return c.claim()
	case n < 8 || len(c.live) == 0:
		return c.issue()
	default:
		return c.revoke()
	}
}

func (c *accountWorker) claim() bool {
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

func (c *accountWorker) issue() bool {
	c.number++
	var key issuedKey
	status, err := c.client.postJSON(context.Background(), "/v1/user/api-keys", map[string]string{"name": fmt.Sprint(c.number)}, &key)
	if err != nil || status != http.StatusCreated {
		return err == nil
	}
	c.live = append(c.live, key)
	return true
}

// revoke revokes a random key. It drops the key from both lists if the outcome is unknown.
func (c *accountWorker) revoke() bool {
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

// verify compares the state of the node with the responses that the worker has received.
func (c *accountWorker) verify(t *testing.T, address string) {
	t.Helper()
	owner := newClient(address, c.site.key)
	defer owner.close()
	for _, slug := range c.claimed {
		owner.expect(t, http.StatusOK, "GET", "/v1/ws/"+slug+"/file-activity/feed", "")
	}
	for _, slug := range c.unsure {
		c.verifyUnsure(t, owner, slug)
	}
	for _, key := range c.live {
		newClient(address, key.Key).expect(t, http.StatusOK, "GET", "/v1/whoami", "")
	}
	for _, key := range c.revoked {
		newClient(address, key.Key).expect(t, http.StatusUnauthorized, "GET", "/v1/whoami", "")
	}
	t.Logf("slugs: %d claimed, %d unsure; keys: %d live, %d revoked", len(c.claimed), len(c.unsure), len(c.live), len(c.revoked))
}

// verifyUnsure verifies that a slug, after a request with an unknown outcome, is either free or has a workspace. Its
// creation may continue after the start.
func (c *accountWorker) verifyUnsure(t *testing.T, owner *client, slug string) {
	t.Helper()
	status, err := owner.postJSON(t.Context(), "/v1/workspaces", map[string]string{"slug": slug, "name": slug}, nil)
	if err != nil || status != http.StatusCreated && status != http.StatusConflict {
		t.Fatalf("claiming %s again: %d %v", slug, status, err)
	}
	eventually(t, "the workspace of "+slug+" can be used", func() bool {
		status, _, err := owner.do(t.Context(), "PUT", "/v1/ws/"+slug+"/drive/works.txt", []byte("it works"))
		return err == nil && status < http.StatusBadRequest
	})
}
