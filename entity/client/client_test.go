package client_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/client"
	"github.com/atelier-run/atelier/entity/entitytest"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const identity = "cli_1"

var (
	noon  = time.UnixMilli(1_800_000_000_000)
	rules = entitytest.Rules[*clientv1.Client, clientv1.Command, clientv1.Event]{Decide: client.Rules.AuthorizeAndDecide, Evolve: client.Evolve}
)

func platformCall() entity.Call {
	return entity.Call{Now: noon, Identity: identity, Principal: entity.Platform()}
}

func good() *clientv1.Client {
	return &clientv1.Client{Id: identity, Name: "Editor", RedirectUris: []string{"https://example.com/back"}, ClientUri: "https://example.com"}
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := client.Zero(identity)
		var log []clientv1.Event
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			call := platformCall()
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 0, 2}).Draw(t, "kind"))
			var c clientv1.Command = &clientv1.DescribeClient{}
			if rapid.Bool().Draw(t, "register") {
				registered := good()
				registered.Name = rapid.SampledFrom([]string{"Editor", "Other", ""}).Draw(t, "name")
				c = &clientv1.RegisterClient{Client: registered}
			}
			next, events, err := rules.Execute(t, call, s, c)
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was authorized: %v", call.Principal, err)
			}
			if err == nil && !proto.Equal(client.Reply(call, next, c, events), next) {
				t.Fatalf("%T: the reply is not the state", c)
			}
			s, log = next, append(log, events...)
		}
		if len(log) > 1 {
			t.Fatalf("registered %d times", len(log))
		}
		if len(log) == 1 && !proto.Equal(client.Evolve(client.Zero(identity), log[0]), s) {
			t.Fatalf("the replayed state is %v, the live state %v", log, s)
		}
	})
}

func TestRegister(t *testing.T) {
	if _, _, err := rules.Execute(t, platformCall(), client.Zero(identity), &clientv1.DescribeClient{}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("none yet: %v", err)
	}
	s, _, err := rules.Execute(t, platformCall(), client.Zero(identity), &clientv1.RegisterClient{Client: good()})
	if err != nil || s.GetCreatedAt() != noon.UnixMilli() || s.GetName() != "Editor" {
		t.Fatalf("%v, %v", s, err)
	}
	for name, change := range map[string]func(*clientv1.Client){
		"id":          func(c *clientv1.Client) { c.Id = "cli_2" },
		"blank name":  func(c *clientv1.Client) { c.Name = " " },
		"long name":   func(c *clientv1.Client) { c.Name = strings.Repeat("é", 101) },
		"none":        func(c *clientv1.Client) { c.RedirectUris = nil },
		"many":        func(c *clientv1.Client) { c.RedirectUris = slicesOf("https://example.com/", 11) },
		"redirect":    func(c *clientv1.Client) { c.RedirectUris = append(c.RedirectUris, "http://example.com") },
		"long host":   func(c *clientv1.Client) { c.RedirectUris = []string{"https://" + strings.Repeat("a", 256) + "/"} },
		"long scheme": func(c *clientv1.Client) { c.RedirectUris = []string{"a." + strings.Repeat("a", 254) + ":/back"} },
		"page":        func(c *clientv1.Client) { c.ClientUri = "ftp://example.com" },
		"long page":   func(c *clientv1.Client) { c.ClientUri = "https://example.com/" + strings.Repeat("a", 2048) },
	} {
		c := good()
		change(c)
		for _, s := range []*clientv1.Client{client.Zero(identity), s} {
			if _, _, err := rules.Execute(t, platformCall(), s, &clientv1.RegisterClient{Client: c}); entitytest.Code(err) != entity.InvalidRequest {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	longest := good()
	longest.Name, longest.ClientUri, longest.RedirectUris = strings.Repeat("é", 100), "", slicesOf("https://example.com/", 10)
	if _, _, err := rules.Execute(t, platformCall(), client.Zero(identity), &clientv1.RegisterClient{Client: longest}); err != nil {
		t.Errorf("the longest: %v", err)
	}
	shortest := &clientv1.Client{Id: identity, RedirectUris: []string{"com.example:/"}, ClientUri: "http://a"}
	if _, _, err := rules.Execute(t, platformCall(), client.Zero(identity), &clientv1.RegisterClient{Client: shortest}); err != nil {
		t.Errorf("the shortest: %v", err)
	}
	if _, _, err := rules.Execute(t, platformCall(), s, &clientv1.RegisterClient{Client: longest}); entitytest.Code(err) != entity.InvalidRequest {
		t.Errorf("another registration: %v", err)
	}
}

func slicesOf(text string, n int) []string { return strings.Fields(strings.Repeat(text+" ", n)) }

func TestCheckRedirect(t *testing.T) {
	for uri, good := range map[string]bool{
		"https://example.com": true, "https://example.com:8443/a?b=c": true, "HTTPS://example.com/": true,
		"http://127.0.0.1:5000/back": true, "http://[::1]/": true, "http://localhost:1": true,
		"com.example.app:/back": true, "com.example.app://back": true,
		"https://example.com/" + strings.Repeat("a", 2028): true,
		"https://example.com/" + strings.Repeat("a", 2029): false,
		"": false, "https://": false, "https:/example.com": false, "/back": false, "example.com": false,
		"http://example.com": false, "http://127.0.0.2": false, "http://localhost.example.com": false, "http://127.0.0.1.example.com": false,
		"https://example.com/#a": false, "https://example.com/#": false, "com.example.app:/back#a": false,
		"javascript:alert(1)": false, "data:text/html,a": false, "myapp://back": false, "file:///etc/passwd": false,
		"https://user@example.com": false, "http://localhost@example.com": false, "https://example.com\\@a": false,
		"https://example.com/\n": false, "https://example.com/a b": false, "https://exämple.com": false, "https://%zz": false,
	} {
		if err := client.CheckRedirect(uri); (err == nil) != good {
			t.Errorf("%q: %v", uri, err)
		}
	}
}
