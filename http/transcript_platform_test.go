package http_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// asPlatform runs the commands of transcripts that no client can send:
//
//	tell KIND ID MESSAGE       sends a message to an entity as the platform; the input is the message as JSON
//	id PREFIX                  makes an id: anc_
//	credential KIND NAME       registers a credential from its JSON and continues with it: APP, SYSTEM_VM, IMPERSONATION
//	grant NAME PERSON WS SCOPE allows a client and continues with its token
//	wait WS                    waits for the work on the workspace's computer
//	runner DOES WS SESSION     claims the turn of a session (claim), or sends the reports of its run: record, end, delta; the input is
//	                           the message as JSON
//	app DOES WS APP            sends the reports of the supervisor of an app: reconciled, failed, crashed, asleep, stopped or survives, with
//	                           the reason in the input; gives its process a key, which the input names (key); or wakes it (wake)
//
// An ID is written without the brackets of its label.
func (s *stage) asPlatform(command string, input string, arguments ...string) string {
	switch command {
	case "tell":
		kind, id, name := arguments[0], s.resolveLabel(arguments[1]), arguments[2]
		return s.tell(kind, id, s.message("atelier."+kind+".v1."+name, input))
	case "id":
		return s.label(s.newID(arguments[0]) + "\n")
	case "credential":
		return s.credential(arguments[0], arguments[1], input)
	case "grant":
		return s.grant(arguments[0], s.resolveLabel(arguments[1]), s.resolveLabel(arguments[2]), arguments[3:]...)
	case "runner":
		return s.run(arguments[0], session.Identity(s.resolveLabel(arguments[1]), s.resolveLabel(arguments[2])), input)
	case "app":
		return s.runApp(arguments[0], app.Identity(s.resolveLabel(arguments[1]), s.resolveLabel(arguments[2])), input)
	case "wait":
		s.wait(s.resolveLabel(arguments[0]))
	}
	return ""
}

// resolveLabel returns the value of a label, or the text itself.
func (s *stage) resolveLabel(label string) string {
	if meaning := s.meaning["<"+label+">"]; meaning != "" {
		return meaning
	}
	return label
}

func (s *stage) message(name, input string) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		s.Fatalf("%s: %v", name, err)
	}
	m := t.New().Interface()
	if input = strings.TrimSpace(s.unlabel(input)); input == "" {
		return m
	}
	if err := protojson.Unmarshal([]byte(input), m); err != nil {
		s.Fatalf("%s: %v", name, err)
	}
	return m
}

func (s *stage) tell(kind, id string, m proto.Message) string {
	_, err := s.node.Router.Ask(s.Context(), entity.Command{Kind: kind, Identity: id, Principal: entity.Platform(), Message: m})
	if err != nil {
		return err.Error() + "\n"
	}
	if err := s.node.Router.Settle(s.Context(), kind, id); err != nil {
		s.Fatal(err)
	}
	return ""
}

func (s *stage) credential(kind, name, input string) string {
	c := s.message("atelier.credential.v1.Credential", input).(*credentialv1.Credential)
	c.Kind = wirev1.CredentialKind(wirev1.CredentialKind_value["CREDENTIAL_KIND_"+kind])
	c.Id = s.newID(keyPrefix(c.Kind))
	var text string
	text, c.SecretSha256 = newKeyOf(c.Kind, c.Id)
	c.CreatedAt = s.clock.Now().UnixMilli()
	s.as, s.keys[name] = name, text
	return s.tell(entity.KindCredential, c.Id, &credentialv1.RegisterCredential{Credential: c})
}

func (s *stage) grant(name, userID, workspaceID string, scopes ...string) string {
	id := s.newID("ogr_")
	text, hash := keys.New(server.KeyStart, id)
	token := &grantv1.Token{SecretSha256: hash, ExpiresAt: s.clock.Now().Add(5 * time.Minute).UnixMilli()}
	s.as, s.keys[name] = name, relabelKey(text, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH)
	return s.tell(entity.KindUser, userID, &userv1.AllowGrant{Grant: &userv1.Grant{
		Id: id, ClientId: "client-1", ClientName: "Editor", RedirectHost: "127.0.0.1", WorkspaceId: workspaceID, Scopes: scopes,
	}}) + s.tell(entity.KindGrant, id, &grantv1.OpenGrant{Grant: &grantv1.Grant{
		Id: id, UserId: userID, ClientId: "client-1", WorkspaceId: workspaceID, Scopes: scopes, Audience: "http://localhost:8080",
		RedirectUri: "http://127.0.0.1/", CodeChallenge: hash, Code: token, CreatedAt: s.clock.Now().UnixMilli(),
	}}) + s.tell(entity.KindGrant, id, &grantv1.RedeemCode{CodeSha256: hash, Access: token, Refresh: token})
}

func (s *stage) wait(workspaceID string) {
	ctx, cancel := context.WithTimeout(s.Context(), longest)
	defer cancel()
	for { // a backup, its reactions, and the report to the workspace
		if err := s.node.Router.Settle(ctx, entity.KindWorkspace, workspaceID); err != nil {
			s.Fatal(err)
		}
		reply, err := s.node.Router.Ask(ctx, entity.Command{
			Kind: entity.KindComputer, Identity: workspaceID, Principal: entity.Platform(), Message: &computerv1.DescribeComputer{},
		})
		if err != nil {
			s.Fatal(fmt.Errorf("waiting for the computer: %w", err))
		}
		if reply.(*computerv1.Computer).GetTask() == nil {
			break
		}
	}
	if err := s.node.Router.Settle(ctx, entity.KindWorkspace, workspaceID); err != nil {
		s.Fatal(err)
	}
}

// transcriptRun is the run that transcripts play.
const transcriptRun = "run_1"

// run plays the runner of a session.
func (s *stage) run(does, identity, input string) string {
	reply, err := s.node.Router.Ask(s.Context(), entity.Command{
		Kind: entity.KindSession, Identity: identity, Principal: entity.Platform(), Message: &sessionv1.DescribeSession{},
	})
	if err != nil {
		return err.Error() + "\n"
	}
	turn := reply.(*sessionv1.Description).GetSession().GetTurn()
	var m proto.Message
	switch does {
	case "claim":
		m = &sessionv1.ClaimTurn{TurnId: turn.GetId(), RunId: transcriptRun}
	case "record":
		rows := s.message("atelier.session.v1.RecordRows", input).(*sessionv1.RecordRows)
		rows.TurnId, rows.RunId, rows.Batch = turn.GetId(), transcriptRun, turn.GetLastBatch()+1
		m = rows
	case "end":
		end := s.message("atelier.session.v1.EndTurn", input).(*sessionv1.EndTurn)
		end.TurnId, end.RunId = turn.GetId(), transcriptRun
		m = end
	case "delta":
		m = s.message("atelier.session.v1.PublishDelta", input)
	default:
		s.Fatalf("a runner does not %s", does)
	}
	return s.tell(entity.KindSession, identity, m)
}
