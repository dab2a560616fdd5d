package runner

import (
	"context"
	"slices"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// repeatText is the input of the system after a turn that had no effect when its computer was lost. The agent then gets the inputs of the lost
// turn again.
const repeatText = "The computer was lost and is back. The agent begins again."

// hasNotBegun reports whether the turn has had no effect. An agent with the extension that carries out runbooks sends its state before the first
// effect. An agent with the extension and a model sends no state, but sends an update for each text and each call of a tool.
func (l *agent) hasNotBegun() bool {
	isExtended := l.dialog.isExtended()
	l.mu.Lock()
	defer l.mu.Unlock()
	return isExtended && !l.hasState && !l.hasActed && !(l.choice.HasModel && l.hasWorked)
}

// isRepeat reports whether an input is the input of the system with repeatText.
func isRepeat(in row) bool {
	return in.GetInput().GetSender().GetKind() == sessionv1.SenderKind_SENDER_KIND_SYSTEM && in.GetInput().GetText() == repeatText
}

// joinRepeated returns inputs, followed by more, which joins them. If more has the input of the system with repeatText, because a later input had
// arrived before the computer was lost, the inputs of the lost turn replace it. They are older than all others, and come first.
func (t *turn) joinRepeated(ctx context.Context, inputs, more []row) ([]row, error) {
	i := slices.IndexFunc(more, isRepeat)
	if i < 0 {
		return append(inputs, more...), nil
	}
	again, err := t.repeated(ctx, more[i:i+1])
	return slices.Concat(again, inputs, more[:i], more[i+1:]), err
}

// repeated replaces the input of the system with repeatText by the inputs of the turn before it.
func (t *turn) repeated(ctx context.Context, inputs []row) ([]row, error) {
	var all []row
	for _, in := range inputs {
		if !isRepeat(in) {
			all = append(all, in)
			continue
		}
		before, err := t.lostInputs(ctx, in.seq)
		if err != nil {
			return nil, err
		}
		found, err := t.r.inputs(ctx, t.identity, before)
		if err != nil {
			return nil, err
		}
		if found, err = t.repeated(ctx, found); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// lostInputs returns the inputs of the turn that ended right before a row because its computer was lost.
func (t *turn) lostInputs(ctx context.Context, before uint64) ([]uint64, error) {
	rows, _, err := t.r.rows(ctx, t.identity, before-1, true, pageRows)
	if err != nil {
		return nil, err
	}
	var seqs []uint64
	for _, row := range rows {
		if row.GetTerminal().GetError().GetCode() != codeComputerLost {
			break
		}
		seqs = append(seqs, row.GetTerminal().GetInputSeq())
	}
	return seqs, nil
}
