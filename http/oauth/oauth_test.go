package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/grant"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	clientID = "oc_01j00000000000000000000001"
	grantID  = "ogr_01j00000000000000000000002"
	callback = "https://client.example/callback"
	verifier = "a-verifier-that-nobody-guesses-0123456789-ABCDEFG"
	code     = CodeStart + "01j00000000000000000000002.code"
)

// entities answers for one client, one person and one grant, which has the real rules.
type entities struct {
	grant   *grantv1.Grant
	reasons []string
	asked   []proto.Message
	ended   []string
	// before is called before each command to the grant.
	before func(proto.Message)
	fail   error
	// loses makes the outcomes of commands to the grant unknown at first: commands with an id are delivered again and get their replies, as
	// entity.Command says, and the others fail.
	loses bool
	// redirects are redirect URIs of the client besides callback.
	redirects []string
}

func (e *entities) Settle(context.Context, string, string) error { return nil }

func (e *entities) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	e.asked = append(e.asked, c.Message)
	switch m := c.Message.(type) {
	case *clientv1.DescribeClient:
		return &clientv1.Client{Id: clientID, Name: "Tester", RedirectUris: append([]string{callback}, e.redirects...)}, e.fail
	case *userv1.DescribeStanding:
		return &userv1.Standing{}, nil
	case grantv1.Command:
		if e.before != nil {
			e.before(m)
		}
		_, isQuery := c.Message.(*grantv1.DescribeGrant)
		reply, err := e.decide(m)
		if e.loses && c.ID == "" && !isQuery {
			return nil, &entity.Error{Code: entity.Unavailable}
		}
		return reply, err
	}
	return nil, errors.New("unexpected command")
}

func (e *entities) decide(m grantv1.Command) (proto.Message, error) {
	call := entity.Call{Now: now, Identity: grantID, Principal: entity.Platform()}
	events, err := grant.Decide(call, e.grant, m)
	if err != nil {
		return nil, err
	}
	for _, event := range events {
		if revoked, ok := event.(*grantv1.Revoked); ok {
			e.reasons = append(e.reasons, revoked.GetReason())
		}
		e.grant = grant.Evolve(e.grant, event)
	}
	return grant.Reply(call, e.grant, m, events), nil
}

var now = time.UnixMilli(1_800_000_000_000)

func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// provide returns a provider with a grant and its unused code.
func provide() (*Provider, *entities) {
	e := &entities{grant: &grantv1.Grant{
		Id: grantID, UserId: "usr_1", ClientId: clientID, WorkspaceId: "ws_1", Scopes: []string{"files:read"},
		Audience: "https://atelier.example", RedirectUri: callback, CodeChallenge: hashOf(verifier),
		Code: &grantv1.Token{SecretSha256: hashOf("code"), ExpiresAt: now.Add(CodeLife).UnixMilli()}, CreatedAt: 1,
	}}
	minted := 0
	public, _ := url.Parse("https://atelier.example")
	return New(Options{
		Asker: e, URL: public, Now: func() time.Time { return now }, NewID: func(prefix string) string { return prefix + "1" },
		Scopes: []string{"admin", "files:read", "files:write"},
		Mint: func(start, id string) (string, []byte) {
			minted++
			secret := strings.Repeat("s", minted)
			return start + strings.TrimPrefix(id, grantPrefix) + "." + secret, hashOf(secret)
		},
		Split: func(start, text string) (string, []byte, bool) {
			rest, ok := strings.CutPrefix(text, start)
			id, secret, cut := strings.Cut(rest, ".")
			return id, hashOf(secret), ok && cut
		},
		Ended: func(id string) { e.ended = append(e.ended, id) },
	}), e
}

func (p *Provider) post(form url.Values) (*Answer, error) {
	form.Set("client_id", clientID)
	r, _ := http.NewRequest("POST", "/oauth/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.ParseForm()
	return p.Token(r, "req_1", "https://atelier.example")
}

func redeeming() url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {callback}, "code_verifier": {verifier}}
}

func refreshing(token string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}}
}

func wantError(t *testing.T, err error, name string) {
	t.Helper()
	var told *Error
	if !errors.As(err, &told) || told.Name != name {
		t.Errorf("%v, want %s", err, name)
	}
}

func (e *entities) wantEnd(t *testing.T, reason string) {
	t.Helper()
	if len(e.reasons) != 1 || e.reasons[0] != reason || len(e.ended) != 1 || e.ended[0] != grantID {
		t.Errorf("ended %v for %q, want once for %s", e.ended, e.reasons, reason)
	}
}

// TestOvertaken has another exchange of the same code or token succeed after the grant was read and before the command.
func TestOvertaken(t *testing.T) {
	overtake := func(e *entities, m proto.Message) {
		e.before = func(asked proto.Message) {
			if _, looks := asked.(*grantv1.DescribeGrant); looks {
				return
			}
			e.before = nil
			if _, err := e.decide(m.(grantv1.Command)); err != nil {
				t.Error(err)
			}
		}
	}
	next := func(text string) *grantv1.Token {
		return &grantv1.Token{SecretSha256: hashOf(text), ExpiresAt: now.Add(time.Hour).UnixMilli()}
	}
	p, e := provide()
	overtake(e, &grantv1.RedeemCode{CodeSha256: hashOf("code"), Access: next("a"), Refresh: next("r")})
	_, err := p.post(redeeming())
	wantError(t, err, "invalid_grant")
	e.wantEnd(t, grant.CodeReplayed)

	p, e = provide()
	first, err := p.post(redeeming())
	if err != nil {
		t.Fatal(err)
	}
	overtake(e, &grantv1.Refresh{RefreshSha256: e.grant.GetRefresh().GetSecretSha256(), Access: next("a"), Refresh: next("r")})
	_, err = p.post(refreshing(first.RefreshToken))
	wantError(t, err, "invalid_grant")
	e.wantEnd(t, grant.RefreshReplayed)
}

// TestUnknownOutcomes has the node of a grant fail after each exchange is durable. The client gets its tokens and is not told to try
// again, which would revoke the grant.
func TestUnknownOutcomes(t *testing.T) {
	p, e := provide()
	e.loses = true
	first, err := p.post(redeeming())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.post(refreshing(first.RefreshToken)); err != nil || len(e.reasons) != 0 {
		t.Errorf("%v, revoked for %q", err, e.reasons)
	}
}

// TestEmptySecrets has clients that send the parameters of other methods of authentication without a value, which counts as none.
func TestEmptySecrets(t *testing.T) {
	for _, name := range []string{"client_secret", "client_assertion", "client_assertion_type"} {
		p, _ := provide()
		form := redeeming()
		form.Set(name, "x")
		_, err := p.post(form)
		wantError(t, err, "invalid_client")
		form.Set(name, "")
		if _, err := p.post(form); err != nil {
			t.Errorf("an empty %s: %v", name, err)
		}
	}
}

// TestBasic has clients that send their id with HTTP Basic. Only an empty secret is accepted, because clients have none.
func TestBasic(t *testing.T) {
	for _, test := range []struct{ id, secret, inBody, want string }{
		{clientID, "", "", ""},
		{clientID, "", clientID, ""},
		{"oc%5F" + strings.TrimPrefix(clientID, clientPrefix), "", "", ""},
		{clientID, "x", clientID, "invalid_client"},
		{clientID, "", "oc_01j00000000000000000000009", "invalid_client"},
		{"", "", clientID, "invalid_client"},
		{"%zz", "", "", "invalid_client"},
	} {
		p, _ := provide()
		form := redeeming()
		if test.inBody != "" {
			form.Set("client_id", test.inBody)
		}
		r, _ := http.NewRequest("POST", "/oauth/token", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth(test.id, test.secret)
		r.ParseForm()
		_, err := p.Token(r, "req_1", "https://atelier.example")
		if test.want != "" {
			wantError(t, err, test.want)
		} else if err != nil {
			t.Errorf("%+v: %v", test, err)
		}
	}
	p, _ := provide()
	r, _ := http.NewRequest("POST", "/oauth/token", strings.NewReader(redeeming().Encode()+"&client_id="+clientID))
	r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Authorization": {"Bearer x"}}
	r.ParseForm()
	_, err := p.Token(r, "req_1", "https://atelier.example")
	wantError(t, err, "invalid_client")
}

// TestOneLook checks that an exchange reads the grant once and sends it one command.
func TestOneLook(t *testing.T) {
	p, e := provide()
	if _, err := p.post(redeeming()); err != nil {
		t.Fatal(err)
	}
	looks, commands := 0, 0
	for _, m := range e.asked {
		switch m.(type) {
		case *grantv1.DescribeGrant:
			looks++
		case grantv1.Command:
			commands++
		}
	}
	if looks != 1 || commands != 1 {
		t.Errorf("%d looks and %d commands", looks, commands)
	}
}

func TestReplaysSayWhy(t *testing.T) {
	p, e := provide()
	if _, err := p.post(redeeming()); err != nil {
		t.Fatal(err)
	}
	_, err := p.post(redeeming())
	wantError(t, err, "invalid_grant")
	e.wantEnd(t, grant.CodeReplayed)

	p, e = provide()
	first, _ := p.post(redeeming())
	if _, err := p.post(refreshing(first.RefreshToken)); err != nil {
		t.Fatal(err)
	}
	_, err = p.post(refreshing(first.RefreshToken))
	wantError(t, err, "invalid_grant")
	e.wantEnd(t, grant.RefreshReplayed)
}

// TestFailures checks that a failure of the server is never reported as the client's mistake, and shows no detail.
func TestFailures(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{&entity.Error{Code: entity.Unavailable}, "temporarily_unavailable"},
		{context.DeadlineExceeded, "temporarily_unavailable"},
		{errors.New("the disk is full"), "server_error"},
		{entity.Errorf(entity.Forbidden, "no"), "server_error"},
		{entity.Errorf(entity.NotFound, "none"), "invalid_client"},
	} {
		p, e := provide()
		e.fail = test.err
		_, err := p.post(redeeming())
		wantError(t, err, test.want)
		var told *Error
		if errors.As(err, &told) && strings.Contains(told.Description, "disk") {
			t.Errorf("%v tells what is inside", told)
		}
		r, _ := http.NewRequest("POST", "/oauth/revoke", strings.NewReader("token="+RefreshStart+"x.y&client_id="+clientID))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.ParseForm()
		wantError(t, p.Revoke(r, "req_1"), test.want)
		asked, err := p.Begin(t.Context(), "req_1", "https://atelier.example", good().Encode())
		if asked != nil {
			t.Error("a request without its client")
		}
		wantError(t, err, test.want)
	}
}
