package api

import (
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// The tables have the API's names of values of sessions.
var (
	turnStatusNames = map[sessionv1.TurnStatus]string{
		sessionv1.TurnStatus_TURN_STATUS_RUNNING:     "running",
		sessionv1.TurnStatus_TURN_STATUS_COMPLETE:    "complete",
		sessionv1.TurnStatus_TURN_STATUS_ASK:         "ask",
		sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED: "interrupted",
		sessionv1.TurnStatus_TURN_STATUS_SLEEP:       "sleep",
	}
	behaviorNames = map[sessionv1.Behavior]string{
		sessionv1.Behavior_BEHAVIOR_STEER:     "steer",
		sessionv1.Behavior_BEHAVIOR_FOLLOW_UP: "follow_up",
	}
	modeNames = map[sessionv1.Mode]string{
		sessionv1.Mode_MODE_AUTO:    "auto",
		sessionv1.Mode_MODE_CONFIRM: "confirm",
	}
	inputKindNames = map[sessionv1.InputKind]string{
		sessionv1.InputKind_INPUT_KIND_PROMPT:  "prompt",
		sessionv1.InputKind_INPUT_KIND_MESSAGE: "message",
		sessionv1.InputKind_INPUT_KIND_NOTE:    "note",
		sessionv1.InputKind_INPUT_KIND_ANSWER:  "answer",
	}
	titleOriginNames = map[sessionv1.TitleOrigin]string{
		sessionv1.TitleOrigin_TITLE_ORIGIN_EXCERPT: "excerpt",
		sessionv1.TitleOrigin_TITLE_ORIGIN_AUTO:    "auto",
		sessionv1.TitleOrigin_TITLE_ORIGIN_MANUAL:  "manual",
	}
	titleStatusNames = map[sessionv1.TitleStatus]string{
		sessionv1.TitleStatus_TITLE_STATUS_GENERATING: "generating",
		sessionv1.TitleStatus_TITLE_STATUS_COMPLETE:   "complete",
		sessionv1.TitleStatus_TITLE_STATUS_FAILED:     "failed",
	}
	activityNames = map[sessionv1.Activity]string{
		sessionv1.Activity_ACTIVITY_RUNNING:  "running",
		sessionv1.Activity_ACTIVITY_SLEEPING: "sleeping",
		sessionv1.Activity_ACTIVITY_WAITING:  "waiting",
		sessionv1.Activity_ACTIVITY_IDLE:     "idle",
	}
	outcomeNames = map[sessionv1.Outcome]string{
		sessionv1.Outcome_OUTCOME_INTERRUPTED: "interrupted",
		sessionv1.Outcome_OUTCOME_COMPLETED:   "completed",
		sessionv1.Outcome_OUTCOME_FAILED:      "failed",
		sessionv1.Outcome_OUTCOME_CANCELLED:   "cancelled",
		sessionv1.Outcome_OUTCOME_ERROR:       "error",
	}
	archiveScopeNames = map[sessionv1.ArchiveScope]string{
		sessionv1.ArchiveScope_ARCHIVE_SCOPE_PERSONAL: "personal",
		sessionv1.ArchiveScope_ARCHIVE_SCOPE_GLOBAL:   "global",
	}
)
