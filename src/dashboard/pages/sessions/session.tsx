import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { type FormEvent, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { hasCode } from "../../../base/errors.ts";
import { isTurn } from "../../../protocol/message.ts";
import { type FollowedSession, followSession } from "../../asks/follow-session.ts";
import {
  type OwnerFacts,
  sessionAsks,
  type SessionFacts,
  type SessionKey,
  type StartedFacts,
  type TurnFacts,
} from "../../asks/sessions.ts";
import { conversationOf, openCallOf } from "../../facts/sessions/conversation.ts";
import { costText, spentOn } from "../../facts/sessions/axis.ts";
import {
  noOwnersSeen,
  ownersAfter,
  ownerSince,
  type Takeover,
} from "../../facts/sessions/owners.ts";
import type { TailView } from "../../facts/sessions/tail.ts";
import { counted, durationText, exactCount } from "../../facts/spans.ts";
import { visibleLine } from "../../facts/visible.ts";
import { wallClockMs } from "../../browser.ts";
import { useLive, useMay, useSeesAll } from "../../live.ts";
import { ActDialog, type PlannedAct } from "../../parts/act-dialog.tsx";
import { AuditLink } from "../../parts/audit-link.tsx";
import { Block, type Fact, FactList } from "../../parts/blocks.tsx";
import { FilterText } from "../../parts/filter-text.tsx";
import { PodLink } from "../../parts/links.tsx";
import { Badge, StatusMark, When } from "../../parts/marks.tsx";
import { PageTitle, Ready } from "../../parts/states.tsx";
import { LongText, ShownText } from "../../parts/text.tsx";
import { JsonValue } from "../../parts/value.tsx";
import { SessionAxis } from "./axis.tsx";
import { Conversation } from "./conversation.tsx";
import { compactPlan, regeneratePlan, stopPlan } from "./decisions.tsx";
import { SessionStateMark } from "./session-marks.tsx";
import "../../styles/sessions.css";

const noTurns: readonly TurnFacts[] = [];
const noneStarted: readonly StartedFacts[] = [];

/** What was said in a session, what its turns did meanwhile, and what may be done about it. */
export function OneSessionPage() {
  const { sessionId } = useParams({ from: "/sessions/$sessionId" });
  const { tenant } = useSearch({ from: "/sessions/$sessionId" });
  const key = useMemo(() => ({ sessionId, tenant }), [sessionId, tenant]);
  // Another session is followed anew.
  return <Followed key={`${tenant ?? ""} ${sessionId}`} sessionKey={key} />;
}

function Followed({ sessionKey: key }: { sessionKey: SessionKey }) {
  const followed = useMemo(() => followSession(key), [key]);
  const tail = useSyncExternalStore(followed.subscribe, followed.view);
  const isGone = tail.status === "gone";
  const found = useLive(["session", key], (signal) => sessionAsks.session(key, signal), {
    isOff: isGone && tail.entries.length > 0,
  });
  const [plan, setPlan] = useState<PlannedAct>();
  const [isMissing, setIsMissing] = useState(false);
  // While it is looked for again there is no error, and what is being typed stays.
  const isMissingNow = found.error ? hasCode(found.error, "not_found") : isMissing && !found.data;
  if (isMissingNow !== isMissing) setIsMissing(isMissingNow);
  const agents = found.data?.agents ?? [];
  return (
    <>
      <PageTitle
        name={agents.length === 0 ? "Session" : `Session with ${agents.join(", ")}`}
        aside={
          found.data && (
            <SessionActs session={found.data} sessionKey={key} tail={tail} onPlan={setPlan} />
          )
        }
      >
        {agents.length === 0 ? (
          "Session"
        ) : (
          <>
            Session with <ShownText text={visibleLine(agents.join(", "), 100)} />
          </>
        )}
      </PageTitle>
      <p className="id-line">
        <code>
          <ShownText text={visibleLine(key.sessionId, 200)} />
        </code>{" "}
        <AuditLink subject={key.sessionId} />
      </p>
      <Ready of={found} what="the session">
        {(session) => (
          <SessionBody
            session={session}
            sessionKey={key}
            followed={followed}
            tail={tail}
            onPlan={setPlan}
          />
        )}
      </Ready>
      {found.data === undefined && isMissing && <OtherTenant sessionKey={key} />}
      {plan && <ActDialog plan={plan} onClose={() => setPlan(undefined)} />}
    </>
  );
}

/** A session is found within its tenant, which an id alone doesn't tell. */
function OtherTenant({ sessionKey: { sessionId, tenant } }: { sessionKey: SessionKey }) {
  const navigate = useNavigate();
  const seesAll = useSeesAll();
  const [text, setText] = useState("");
  if (!seesAll) return null;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const search = text.trim() === "" ? {} : { tenant: text.trim() };
    void navigate({ to: "/sessions/$sessionId", params: { sessionId }, search });
  };
  return (
    <form className="filter" onSubmit={submit}>
      <span>
        It was looked for in the tenant <ShownText text={visibleLine(tenant ?? "default", 100)} />.
      </span>
      <FilterText label="Tenant" value={text} onChange={setText} onApply={() => {}} isFirst />
      <button type="submit" className="button">
        Look there
      </button>
    </form>
  );
}

type BodyProps = {
  session: SessionFacts;
  sessionKey: SessionKey;
  followed: FollowedSession;
  tail: TailView;
  onPlan: (plan: PlannedAct) => void;
};

function SessionBody({ session, sessionKey: key, followed, tail, onPlan }: BodyProps) {
  const isGone = tail.status === "gone";
  const state = tail.state ?? session.state;
  const maySeeTasks = useMay("tasks:read");
  const turns = useLive(["turns", key], (signal) => sessionAsks.turns(key, signal), {
    isOff: isGone,
  });
  const started = useLive(["started", key], (signal) => sessionAsks.started(key, signal), {
    isOff: !maySeeTasks || isGone,
    isSettled: () => state.state === "idle",
  });
  const { owner, sinceMs, takeovers } = useOwner(key, isGone);
  const stage = isTurn(state) ? `${state.state} ${state.epoch}.${state.attempt}` : state.state;
  useEffect(() => {
    // The page knows at once that a turn has begun or ended, and draws it then.
    if (tail.status !== "live") return;
    void turns.refetch();
    if (maySeeTasks) void started.refetch();
  }, [stage]);
  const known = turns.data?.turns ?? noTurns;
  // The last attempt at a turn brought its answer. It comes first, and is put in last.
  const byEpoch = useMemo(
    () => new Map(known.toReversed().map((turn) => [turn.epoch, turn])),
    [known],
  );
  return (
    <>
      <Headline session={session} tail={tail} />
      <Takeovers takeovers={takeovers} />
      <div className="session-columns">
        <Conversation
          tail={tail}
          followed={followed}
          session={key}
          turns={byEpoch}
          onPlan={onPlan}
        />
        <SessionAxis
          tail={tail}
          turns={known}
          started={started.data?.started ?? noneStarted}
          hasMore={turns.data?.next != null}
        />
      </div>
      <div className="columns">
        <div>
          <StartedTasks
            sessionId={key.sessionId}
            started={started.data?.started ?? noneStarted}
            hasMore={started.data?.hasMore ?? false}
          />
          {session.metadata !== null && (
            <Block title="Metadata">
              <JsonValue value={session.metadata} label="the metadata" />
            </Block>
          )}
        </div>
        <div>
          <Facts session={session} turns={known} owner={owner} ownedSinceMs={sinceMs} />
        </div>
      </div>
    </>
  );
}

/** The pod that owns the session's log, and the takeovers that were seen while the page is open. */
function useOwner(key: SessionKey, isGone: boolean) {
  // Pods are the business of callers that look after the fleet as a whole.
  const mayLook = useMay("fleet:read");
  const seesAll = useSeesAll();
  const { data: owner } = useLive(["owner", key], (signal) => sessionAsks.owner(key, signal), {
    isOff: !mayLook || !seesAll || isGone,
  });
  const [seen, setSeen] = useState(noOwnersSeen);
  useEffect(() => {
    if (owner) setSeen((before) => ownersAfter(before, owner, wallClockMs()));
  }, [owner]);
  return { owner, sinceMs: owner && ownerSince(seen, owner), takeovers: seen.takeovers };
}

/** Says that another pod goes on with the session. */
function Takeovers({ takeovers }: { takeovers: readonly Takeover[] }) {
  return (
    <div className="takeovers" role="status" aria-label="Takeovers">
      {takeovers.map(({ term, fromPodId, toPodId, atMs }) => (
        <p key={term}>
          <Badge tone="warn">taken over</Badge> <PodLink podId={toPodId} /> has taken its log over
          from <PodLink podId={fromPodId} /> <When atMs={atMs} />
        </p>
      ))}
    </div>
  );
}

/** What goes on, in a sentence. */
function Headline({ session, tail }: { session: SessionFacts; tail: TailView }) {
  const state = tail.state ?? session.state;
  const waits = useMemo(() => openCallsOf(tail), [tail.entries, tail.answer]);
  return (
    <p className="headline">
      <SessionStateMark state={state} />
      <span className="soft">
        {tail.status === "gone" ? (
          <span className="wrong">The session is gone: it was deleted while you looked.</span>
        ) : isTurn(state) ? (
          <>
            <ShownText text={visibleLine(state.agent, 80)} />{" "}
            {state.stopping
              ? "is asked to stop"
              : state.state === "waiting"
                ? placeText(tail)
                : "answers"}
            {state.attempt > 1 && `, attempt ${state.attempt}`}
          </>
        ) : waits.length > 0 ? (
          <>
            <Badge tone="warn">waits for a person</Badge>{" "}
            <ShownText text={visibleLine(waits.join(", "), 200)} />
          </>
        ) : state.state === "compacting" ? (
          "a summary is being made"
        ) : (
          <>
            last active <When atMs={session.activeAtMs} />
          </>
        )}
      </span>
      {session.status === "archived" && <Badge>archived</Badge>}
      {tail.status === "live" && <span className="live soft">live</span>}
      {tail.status === "away" && (
        <span className="warn" role="status">
          the connection is lost, and is made again by itself
        </span>
      )}
    </p>
  );
}

/** The place of the turn that waits for a permit. */
function placeText({ waiting }: TailView): string {
  if (!waiting) return "waits for a permit of its throttle";
  const about = waiting.aboutMs === undefined ? "" : `, about ${durationText(waiting.aboutMs)}`;
  return `waits for a permit of its throttle, ${exactCount(waiting.ahead)} ahead${about}`;
}

/** The tools of calls that wait for a person, in the last message. */
function openCallsOf({ entries }: TailView): string[] {
  const last = conversationOf(entries.slice(-50), undefined).findLast(
    (item) => item.type === "message" && item.entry.role === "assistant",
  );
  if (last?.type !== "message" || last.entry.outcome !== "completed") return [];
  return last.parts.flatMap((part) => openCallOf(part, last.key)?.tool ?? []);
}

function SessionActs({
  session,
  sessionKey: key,
  tail,
  onPlan,
}: {
  session: SessionFacts;
  sessionKey: SessionKey;
  tail: TailView;
  onPlan: (plan: PlannedAct) => void;
}) {
  const mayAct = useMay("fleet:operate");
  if (!mayAct || tail.status === "gone" || session.status === "archived") return null;
  const state = tail.state ?? session.state;
  const lastAnswer = tail.entries.findLast(
    ({ kind, role }) => kind === "message" && role === "assistant",
  );
  return (
    <div className="page-aside">
      {isTurn(state) && !state.stopping && (
        <button
          type="button"
          className="button"
          onClick={() => onPlan(stopPlan(key, state.epoch, state.agent))}
        >
          Stop
        </button>
      )}
      {state.state === "idle" && lastAnswer && (
        <button
          type="button"
          className="button"
          onClick={() => onPlan(regeneratePlan(key, lastAnswer.messageId, lastAnswer.author))}
        >
          Regenerate
        </button>
      )}
      {state.state === "idle" && session.tokens > 0 && (
        <button
          type="button"
          className="button"
          onClick={() => onPlan(compactPlan(key, session.tokens))}
        >
          Compact
        </button>
      )}
    </div>
  );
}

function Facts({
  session,
  turns,
  owner,
  ownedSinceMs,
}: {
  session: SessionFacts;
  turns: readonly TurnFacts[];
  owner: OwnerFacts | undefined;
  /** When the owner took the log over, if the page has seen it do so. */
  ownedSinceMs: number | undefined;
}) {
  const { tenant, agents, users, lastSeq, tokens, createdAtMs, activeAtMs } = session;
  const { input, output, cost } = spentOn(turns);
  const facts: Fact[] = [
    ["Tenant", <ShownText key="tenant" text={tenant} />],
    ["Agents", <LongText key="agents" text={agents.join(", ")} maxChars={200} />],
    users.length > 0 && ["Users", <LongText key="users" text={users.join(", ")} maxChars={200} />],
    ["Entries", exactCount(lastSeq)],
    ["Since the summary", `${exactCount(tokens)} tokens`],
    input + output > 0 && [
      turns.length === 1 ? "Its turn" : `Last ${counted(turns.length, "attempt")}`,
      `${exactCount(input)} tokens in, ${exactCount(output)} out`,
    ],
    cost !== undefined && ["Cost of these", costText(cost)],
    owner !== undefined && [
      "Owner of its log",
      <span key="owner">
        {owner.podId === null ? "none right now" : <PodLink podId={owner.podId} />}, log{" "}
        {owner.logId}, term {exactCount(owner.term)}
        {ownedSinceMs !== undefined && (
          <>
            , since <When atMs={ownedSinceMs} />
          </>
        )}
      </span>,
    ],
    ["Created", <When key="created" atMs={createdAtMs} />],
    ["Last active", <When key="active" atMs={activeAtMs} />],
  ];
  return (
    <Block title="Facts">
      <FactList facts={facts} />
    </Block>
  );
}

function StartedTasks({
  sessionId,
  started,
  hasMore,
}: {
  sessionId: string;
  started: readonly StartedFacts[];
  hasMore: boolean;
}) {
  if (started.length === 0) return null;
  return (
    <Block title="Tasks and runs that it started">
      <ul className="lines">
        {started.map(({ taskId, name, status, atMs }) => (
          <li key={taskId}>
            <Link to="/tasks/$taskId" params={{ taskId }} title={taskId}>
              <ShownText text={visibleLine(name ?? "what is gone", 80)} />
            </Link>
            {status !== null && <StatusMark status={status} />}
            <span className="soft end">
              <When atMs={atMs} />
            </span>
          </li>
        ))}
        {hasMore && (
          <li>
            <Link to="/tasks" search={{ session: sessionId }}>
              all that it has started
            </Link>{" "}
            <span className="soft">These are the first {exactCount(started.length)}.</span>
          </li>
        )}
      </ul>
    </Block>
  );
}
