package device_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/device"
	"github.com/atelier-run/atelier/entity/entitytest"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const identity = "ABCDEFG-2345672"

var (
	noon  = time.UnixMilli(1_800_000_000_000)
	rules = entitytest.Rules[*devicev1.Device, devicev1.Command, devicev1.Event]{Decide: device.Rules.AuthorizeAndDecide, Evolve: device.Evolve}
)

func platformCall() entity.Call {
	return entity.Call{Now: noon, Identity: identity, Principal: entity.Platform()}
}

// execute decides a command and applies its events. It fails the test if a law of rules is broken, see entitytest.Rules.
func execute(t rapid.TB, call entity.Call, s *devicev1.Device, c devicev1.Command) (*devicev1.Device, []devicev1.Event, error) {
	t.Helper()
	s, events, err := rules.Execute(t, call, s, c)
	if err == nil && !proto.Equal(device.Reply(call, s, c, events), s) {
		t.Fatalf("%T: the reply is not the state", c)
	}
	return s, events, err
}

func commands() *rapid.Generator[devicev1.Command] {
	return rapid.Custom(func(t *rapid.T) devicev1.Command {
		user := rapid.SampledFrom([]string{"usr_1", "usr_1", "usr_2", ""}).Draw(t, "user")
		machine := rapid.SampledFrom([]string{"mch_1", "mch_2", ""}).Draw(t, "machine")
		switch rapid.IntRange(0, 3).Draw(t, "command") {
		case 0:
			return &devicev1.DescribeDevice{}
		case 1:
			return &devicev1.ReleaseDevice{UserId: user, MachineId: machine}
		default:
			return &devicev1.ClaimDevice{UserId: user, MachineId: machine, Name: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "name")}
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := device.Zero(identity)
		var log []devicev1.Event
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			call := platformCall()
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 0, 2, 7, 8}).Draw(t, "kind"))
			c := commands().Draw(t, "command")
			next, events, err := execute(t, call, s, c)
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was authorized: %v", call.Principal, err)
			}
			if next.GetUserId() != "" && s.GetUserId() != "" && (next.GetUserId() != s.GetUserId() || next.GetMachineId() != s.GetMachineId()) {
				t.Fatalf("%v became %v", s, next)
			}
			s, log = next, append(log, events...)
		}
		replayed := device.Zero(identity)
		for _, e := range log {
			replayed = device.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

func TestCheck(t *testing.T) {
	group := "ABCDEFG"
	for id, good := range map[string]bool{
		group: true, "2345672": true, identity: true, strings.Repeat(group+"-", 15) + group: true,
		"": false, "ABCDEF": false, "ABCDEFGH": false, "abcdefg": false, "ABCDEF1": false, "ABCDEF8": false,
		group + "-": false, "-" + group: false, group + "--" + group: false, group + " " + group: false, group + "\n": false,
		strings.Repeat(group+"-", 16) + group: false,
	} {
		if (device.Check(id) == nil) != good {
			t.Errorf("%q: %v", id, device.Check(id))
		}
	}
}

func TestClaim(t *testing.T) {
	claim := func(user, machine, name string) *devicev1.ClaimDevice {
		return &devicev1.ClaimDevice{UserId: user, MachineId: machine, Name: name}
	}
	s, _, err := execute(t, platformCall(), device.Zero(identity), claim("usr_1", "mch_1", "laptop"))
	if err != nil || s.GetMachineId() != "mch_1" {
		t.Fatalf("%v, %v", s, err)
	}
	for name, test := range map[string]struct {
		c    *devicev1.ClaimDevice
		want entity.Code
	}{
		"another person": {claim("usr_2", "mch_2", "laptop"), entity.DeviceInUse},
		"no person":      {claim("", "mch_2", "laptop"), entity.InvalidRequest},
		"no machine":     {claim("usr_1", "", "laptop"), entity.InvalidRequest},
		"no name":        {claim("usr_1", "mch_1", ""), entity.InvalidRequest},
		"repeated":       {claim("usr_1", "mch_2", "laptop"), ""},
	} {
		if _, _, err := execute(t, platformCall(), s, test.c); entitytest.Code(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := platformCall()
	elsewhere.Identity = "laptop"
	if _, _, err := execute(t, elsewhere, device.Zero("laptop"), claim("usr_1", "mch_1", "laptop")); entitytest.Code(err) != entity.InvalidRequest {
		t.Errorf("invalid sync device id: %v", err)
	}
	s, events, _ := execute(t, platformCall(), s, claim("usr_1", "mch_2", "desk"))
	want := &devicev1.DeviceClaimed{SyncDeviceId: identity, UserId: "usr_1", MachineId: "mch_1", Name: "desk", At: noon.UnixMilli()}
	if len(events) != 1 || !proto.Equal(events[0], want) {
		t.Fatalf("renamed: %v", events)
	}
	if _, events, _ := execute(t, platformCall(), s, &devicev1.ReleaseDevice{UserId: "usr_1", MachineId: "mch_2"}); len(events) > 0 {
		t.Errorf("another machine's release: %v", events)
	}
	s, _, _ = execute(t, platformCall(), s, &devicev1.ReleaseDevice{UserId: "usr_1", MachineId: "mch_1"})
	if _, _, err := execute(t, platformCall(), s, claim("usr_2", "mch_3", "n")); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

func TestConfirmClaim(t *testing.T) {
	confirm := &devicev1.ConfirmClaim{MachineId: "mch_1"}
	free := device.Zero(identity)
	if _, _, err := execute(t, platformCall(), free, confirm); entitytest.Code(err) != entity.NotFound {
		t.Errorf("a free device: %v", err)
	}
	claimed, _, err := execute(t, platformCall(), free, &devicev1.ClaimDevice{UserId: "usr_1", MachineId: "mch_1", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, events, err := execute(t, platformCall(), claimed, confirm); err != nil || len(events) > 0 {
		t.Errorf("a claimed device: %v, %v", events, err)
	}
	if _, _, err := execute(t, platformCall(), claimed, &devicev1.ConfirmClaim{MachineId: "mch_2"}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("a device claimed for another machine: %v", err)
	}
}

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"claim": {"D", &devicev1.DeviceClaimed{SyncDeviceId: "D", UserId: "usr_1", MachineId: "m", Name: "n", At: 5}, []entity.Reaction{{
			Condition: &entity.Command{Kind: entity.KindDevice, Identity: "D", Message: &devicev1.ConfirmClaim{MachineId: "m"}},
			Command: entity.Command{
				Kind: entity.KindUser, Identity: "usr_1", Message: &userv1.RegisterMachine{MachineId: "m", Name: "n", SyncDeviceId: "D"},
			},
			Otherwise: &entity.Command{
				Kind: entity.KindDevice, Identity: "D", Message: &devicev1.ReleaseDevice{UserId: "usr_1", MachineId: "m"},
			},
		}}},
		"release": {"D", &devicev1.DeviceReleased{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, device.Kind.React(test.identity, test.event), test.want)
		})
	}
}
