package binding_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/entity/entitytest"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

func TestClaim(t *testing.T) {
	n := newName(t)
	n.claim()
	n.expect("pending")
	if n.open() != "[domain.check] []" {
		t.Errorf("open after a claim: %s", n.open())
	}
	record := n.shown().GetRecords()[0]
	if record.GetType() != "TXT" || record.GetDomain() != "_atelier."+host || record.GetValue() != binding.Token("ws", host) {
		t.Errorf("the record is %v", record)
	}
	if !n.shown().GetClaimed() || n.shown().GetId() != "dom" || n.shown().GetChecking() {
		t.Errorf("shown: %v", n.shown())
	}
	if events := n.do(&bindingv1.ClaimBinding{WorkspaceId: "ws", AppId: "app", DomainId: "dom"}); len(events) != 0 {
		t.Errorf("events of the same claim: %v", events)
	}
}

func TestClaimOfAnotherApp(t *testing.T) {
	for name, test := range map[string]struct {
		workspace, app, domain string
		removing               bool
		code                   entity.Code
	}{
		"other_workspace_is_refused":        {"ws2", "app", "dom", false, entity.HostnameInUse},
		"other_app_is_refused":              {"ws", "app2", "dom2", false, entity.HostnameInUse},
		"other_domain_of_app_is_refused":    {"ws", "app", "dom2", false, entity.HostnameInUse},
		"same_app_while_removing_must_wait": {"ws", "app", "dom2", true, entity.DomainCleanupPending},
		"other_app_while_removing":          {"ws2", "app2", "dom2", true, entity.DomainCleanupPending},
	} {
		t.Run(name, func(t *testing.T) {
			n := newName(t)
			n.activate()
			if test.removing {
				n.do(&bindingv1.ReleaseBinding{DomainId: "dom"})
			}
			before := proto.Clone(n.state)
			events := n.do(&bindingv1.ClaimBinding{WorkspaceId: test.workspace, AppId: test.app, DomainId: test.domain})
			want := &bindingv1.ClaimRefused{WorkspaceId: test.workspace, AppId: test.app, DomainId: test.domain, Code: string(test.code), At: n.now.UnixMilli()}
			if len(events) != 1 || !proto.Equal(events[0], want) || !proto.Equal(n.state, before) {
				t.Fatalf("events %v, want %v", events, want)
			}
			entitytest.EqualReactions(t, binding.React(host, events[0]), []entity.Reaction{entity.Send(entity.KindApp, test.workspace+"/"+test.app,
				&appv1.ReportDomainRefused{DomainId: test.domain, Code: string(test.code)})})
		})
	}
}

func TestReactions(t *testing.T) {
	n := newName(t)
	n.claim()
	shown := n.events[len(n.events)-1]
	entitytest.EqualReactions(t, binding.React(host, shown), []entity.Reaction{
		entity.Send(entity.KindApp, "ws/app", &appv1.ReportDomain{Domain: n.shown()}),
	})
	n.do(&bindingv1.ReleaseBinding{DomainId: "dom"})
	events := n.do(&bindingv1.ReportCleanedUp{Number: n.state.GetCleanUp().GetNumber()})
	entitytest.EqualReactions(t, binding.React(host, events[0]), []entity.Reaction{
		entity.Send(entity.KindApp, "ws/app", &appv1.ReportDomainReleased{DomainId: "dom"}),
	})
}

func TestCheckHostname(t *testing.T) {
	long := strings.Repeat("a", 63)
	for hostname, valid := range map[string]bool{
		"shop.example.com": true, "example.com": true, "xn--pple-43d.com": true, "a-b.c0": true, long + ".com": true,
		"": false, "com": false, "localhost": false, "*.example.com": false, "a.*.com": false, "Shop.example.com": false,
		"example.com.": false, "-a.com": false, "a-.com": false, "a..com": false, ".com": false, "a_b.com": false, "аpple.com": false,
		"127.0.0.1": false, "1.2": false, "[::1]": false, "a.com:80": false, "a.com/x": false, "a b.com": false, "a\x00.com": false,
		long + "a.com": false, long + "." + long + "." + long + "." + long[:61]: true, long + "." + long + "." + long + "." + long[:62]: false,
		strings.Repeat("a.", 125) + "com": true, strings.Repeat("a.", 125) + "info": false,
	} {
		if err := binding.CheckHostname(hostname); (err == nil) != valid {
			t.Errorf("%q: %v", hostname, err)
		}
	}
	if got := binding.NormalizeHostname("Shop.Example.COM."); got != host {
		t.Errorf("normalized: %q", got)
	}
	_, err := binding.Decide(entity.Call{Identity: "*.example.com"}, binding.Zero("*.example.com"),
		&bindingv1.ClaimBinding{WorkspaceId: "ws", AppId: "app", DomainId: "dom"})
	if entitytest.Code(err) != entity.InvalidRequest {
		t.Errorf("the claim of a wildcard: %v", err)
	}
}

func TestToken(t *testing.T) {
	tokens := map[string]string{}
	for _, pair := range [][2]string{{"ws", host}, {"ws2", host}, {"ws", "shop2.example.com"}, {"w", "s" + host}, {"ws" + host, ""}} {
		token := binding.Token(pair[0], pair[1])
		if len(token) != 52 || strings.Trim(token, "abcdefghijklmnopqrstuvwxyz234567") != "" || tokens[token] != "" {
			t.Errorf("the token of %v is %q (%s)", pair, token, tokens[token])
		}
		tokens[token] = pair[0]
	}
	if binding.Token("ws", host) != "754nisbtm3zhev4a57ncp5dtf3awadvgxefz7yhd2ng7ysiryfva" {
		t.Errorf("tokens changed, and the records of domains prove nothing any more: %s", binding.Token("ws", host))
	}
}

func TestChecks(t *testing.T) {
	n := newName(t)
	n.claim()
	var pauses []time.Duration
	for range 11 {
		n.report(true, false)
		n.expect("pending")
		pauses = append(pauses, n.fire())
	}
	want := []time.Duration{15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600}
	for i := range want {
		if pauses[i] != want[i]*time.Second {
			t.Errorf("pause %d is %s, want %s", i, pauses[i], want[i]*time.Second)
		}
	}
	n.report(true, true)
	n.expect("verifying")
	if n.open() != "[domain.issue] [check]" || n.shown().GetVerifiedAt() != n.now.UnixMilli() {
		t.Errorf("open: %s, shown: %v", n.open(), n.shown())
	}
	n.fire()
	n.do(&bindingv1.ReportCheck{Number: n.state.GetCheck().GetNumber(), Failure: "no resolver answers"})
	n.expect("verifying")
	if n.shown().GetLastError() != "no resolver answers" {
		t.Errorf("shown: %v", n.shown())
	}
	n.fire()
	n.report(false, true)
	n.expect("pending")
	if n.open() != "[] [check]" {
		t.Errorf("open after the records are gone: %s", n.open())
	}
}

func TestCheckWithConflictIsNotRouted(t *testing.T) {
	n := newName(t)
	n.claim()
	n.do(&bindingv1.ReportCheck{
		Number: 1, Owned: true, Routed: true, Conflicts: []*appv1.Conflict{{Name: host, Type: "A", Value: "192.0.2.1"}},
	})
	n.expect("pending")
	if len(n.shown().GetConflicts()) != 1 {
		t.Errorf("shown: %v", n.shown())
	}
}

func TestReportsAreBounded(t *testing.T) {
	n := newName(t)
	n.claim()
	report := &bindingv1.ReportCheck{Number: 1, Failure: strings.Repeat("é", 3000) + "\xff"}
	for range 40 {
		report.Records = append(report.Records, &appv1.Record{Type: "TXT", Domain: host, Value: "a\nb"}, &appv1.Record{Type: "", Domain: host, Value: "x"})
		report.Conflicts = append(report.Conflicts, &appv1.Conflict{Name: strings.Repeat("n", 254), Type: "A", Value: "x"},
			&appv1.Conflict{Name: host, Type: "A", Value: ""})
	}
	n.do(report)
	if e := []rune(n.shown().GetLastError()); len(e) != 2000 {
		t.Errorf("the error has %d characters", len(e))
	}
	n.fire()
	report.Number, report.Failure = 2, ""
	n.do(report)
	if d := n.shown(); len(d.GetRecords()) != 32 || d.GetRecords()[0].GetValue() != "a b" || len(d.GetConflicts()) != 0 {
		t.Errorf("%d records, %d conflicts", len(d.GetRecords()), len(d.GetConflicts()))
	}
}

func TestRecheck(t *testing.T) {
	n := newName(t)
	n.activate()
	if n.do(&bindingv1.RecheckBinding{DomainId: "another"}); n.state.GetChecking() {
		t.Error("the recheck of another domain has begun")
	}
	n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
	n.expect("active checking")
	if events := n.do(&bindingv1.RecheckBinding{DomainId: "dom"}); len(events) != 0 {
		t.Errorf("events of a second recheck: %v", events)
	}
	n.pass(time.Second)
	n.report(true, true)
	n.expect("active")
	if n.shown().GetChecking() || n.shown().GetLastCheckedAt() != n.now.UnixMilli() {
		t.Errorf("shown: %v", n.shown())
	}
	n.fire() // the check on time is not a member's check, until a member requests it
	n.expect("active")
	n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
	n.expect("active checking")
	if n.state.GetCheck().GetNumber() != n.state.GetLastCheck() || n.open() != "[domain.check] [issue]" {
		t.Errorf("open: %s", n.open())
	}
}

func TestPatience(t *testing.T) {
	n := newName(t)
	n.claim()
	for n.state.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_PENDING {
		n.report(false, true)
		if len(binding.Timers(n.state)) > 0 {
			n.fire()
		}
	}
	n.expect("failed")
	if after := n.now.UnixMilli() - n.state.GetCreatedAt(); after < binding.Patience.Milliseconds() || after > (binding.Patience+time.Hour).Milliseconds() {
		t.Errorf("failed after %d ms", after)
	}
	if n.open() != "[] []" || n.shown().GetLastError() == "" {
		t.Errorf("open: %s, shown: %v", n.open(), n.shown())
	}
	n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
	n.expect("pending checking")
	n.report(false, true) // the wait begins again
	n.expect("pending")
}

func TestMissingRecordOfActiveName(t *testing.T) {
	n := newName(t)
	n.activate()
	n.fire()
	n.report(false, true)
	n.expect("active")
	for range 71 {
		n.fire()
		n.report(false, true)
	}
	n.expect("active")
	n.fire()
	n.do(&bindingv1.ReportCheck{Number: n.state.GetCheck().GetNumber(), Failure: "no answer"}) // proves nothing
	n.expect("active")
	n.fire()
	n.report(false, true)
	n.expect("failed")
	if n.open() != "[] []" {
		t.Errorf("open: %s", n.open())
	}

	n = newName(t)
	n.activate()
	for range 100 { // the record is there again in between
		n.fire()
		n.report(false, false)
		n.fire()
		n.report(true, false)
	}
	n.expect("active")
}
