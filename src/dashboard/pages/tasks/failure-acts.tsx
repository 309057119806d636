import { api, type ErrorGroupFacts, type RedriveFacts } from "../../api.ts";
import { tasksApi } from "../../asks/tasks.ts";
import { wallClockMs } from "../../browser.ts";
import { counted } from "../../facts/spans.ts";
import type { PlannedAct } from "../../parts/act-dialog.tsx";
import { ShownText } from "../../parts/text.tsx";

/** What people may do about failed tasks of one error, each with what it means. */

export function redrivePlan({ group, name, tasks }: ErrorGroupFacts): PlannedAct {
  return {
    title: `Redrive ${counted(tasks, "task")}?`,
    explanation: (
      <p>
        One failed task of{" "}
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        starts over first. If it succeeds, two follow, then four, and so on. If the error comes
        back, the redrive halts and the rest stays here.
      </p>
    ),
    verb: "Redrive",
    option: "Forget their stored steps, so that all of them run again",
    async perform({ actId, isChosen }) {
      await api.startRedrive({ group, fromStart: isChosen }, { actId });
      return "The redrive has begun.";
    },
  };
}

export function discardPlan({ group, name, tasks }: ErrorGroupFacts): PlannedAct {
  return {
    title: `Discard ${counted(tasks, "task")}?`,
    explanation: (
      <p>
        Failed tasks of{" "}
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        become cancelled and keep their error. They leave this page, and each can still be retried
        by itself.
      </p>
    ),
    verb: "Discard",
    isHarmful: true,
    async perform({ actId }) {
      const { discarded } = await api.discard({ group }, { actId });
      return `${counted(discarded, "task")} discarded.`;
    },
  };
}

export function resolvePlan({ group, name }: ErrorGroupFacts): PlannedAct {
  return {
    title: "Resolve this error?",
    explanation: (
      <p>
        It says that the error of{" "}
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        is fixed. The failed tasks stay as they are. When a task fails with it again, it is open
        again and says that it came back.
      </p>
    ),
    verb: "Resolve",
    async perform({ actId }) {
      await tasksApi.changeGroup(group, "resolve", { actId });
      return "The error is resolved.";
    },
  };
}

const ignoreSpans = [
  ["", "until a task fails with it"],
  ["3600000", "for an hour"],
  ["86400000", "for a day"],
  ["604800000", "for 7 days"],
] as const;

export function ignorePlan({ group, name }: ErrorGroupFacts): PlannedAct {
  return {
    title: "Ignore this error?",
    explanation: (
      <p>
        The error of{" "}
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        is left out of this page and of the verdict. The failed tasks stay as they are.
      </p>
    ),
    verb: "Ignore",
    choice: { label: "Ignore it", values: ignoreSpans },
    async perform({ actId, chosen }) {
      const untilMs = chosen === "" ? undefined : wallClockMs() + Number(chosen);
      await tasksApi.changeGroup(group, "ignore", { actId, untilMs });
      return "The error is ignored.";
    },
  };
}

export function reopenPlan({ group, name, state }: ErrorGroupFacts): PlannedAct {
  return {
    title: "Reopen this error?",
    explanation: (
      <p>
        The error of{" "}
        <strong>
          <ShownText text={name} />
        </strong>{" "}
        is {state} no more, and is shown as open.
      </p>
    ),
    verb: "Reopen",
    async perform({ actId }) {
      await tasksApi.changeGroup(group, "reopen", { actId });
      return "The error is open again.";
    },
  };
}

export function stopRedrivePlan({ redriveId, open }: RedriveFacts): PlannedAct {
  return {
    title: "Stop this redrive?",
    explanation: (
      <p>It starts no more tasks over. {open > 0 && `${counted(open, "task")} under way go on.`}</p>
    ),
    verb: "Stop it",
    async perform({ actId }) {
      await api.cancelRedrive(redriveId, { actId });
      return "The redrive stops.";
    },
  };
}
