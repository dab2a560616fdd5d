package device_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/device"
	"github.com/atelier-run/atelier/entity/entitytest"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

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
