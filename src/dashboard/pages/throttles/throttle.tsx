import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { type ReactNode, useMemo, useState } from "react";
import { shownEvents, throttleAsks } from "../../asks/throttles.ts";
import { spanNamed, spanSearch } from "../../facts/series/span.ts";
import { durationText, exactCount } from "../../facts/spans.ts";
import {
  causeText,
  changeText,
  changeTone,
  type HolderFacts,
  refusedText,
  type ThrottleAt,
  type ThrottleEventFacts,
  type ThrottleFacts,
  throttleSentence,
} from "../../facts/throttles/throttle.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive, useMay } from "../../live.ts";
import { ActDialog, type PlannedAct } from "../../parts/act-dialog.tsx";
import { AuditLink } from "../../parts/audit-link.tsx";
import { PodLink, SessionLink } from "../../parts/links.tsx";
import { When, Wide } from "../../parts/marks.tsx";
import { SpanChoice } from "../../parts/span-choice.tsx";
import { PageTitle, Ready } from "../../parts/states.tsx";
import { shortId, ShownText } from "../../parts/text.tsx";
import { PinDialog } from "./pin-dialog.tsx";
import { ThrottlePlots } from "./throttle-plots.tsx";
import "../../styles/throttles.css";

/** What does the API take, and why? One throttle and key: its limit over time, and each change of it. */
export function OneThrottlePage() {
  const { throttle: name } = useParams({ from: "/throttles/$throttle" });
  const { key = "", span: asked } = useSearch({ from: "/throttles/$throttle" });
  const navigate = useNavigate();
  const at = useMemo(() => ({ name, key }), [name, key]);
  const throttle = useLive(["throttle", name, key], (signal) => throttleAsks.one(at, signal));
  const events = useLive(["throttle events", name, key], (signal) =>
    throttleAsks.events(at, signal),
  );
  const span = spanNamed(asked);
  const found = throttle.data;
  return (
    <>
      <PageTitle
        name={`Throttle ${key === "" ? name : `${name} ${key}`}`}
        aside={found && <Acts at={at} throttle={found} />}
      >
        <ShownText text={visibleLine(name, 200)} />
        {key !== "" && (
          <span className="soft">
            {" "}
            <ShownText text={visibleLine(key, 200)} />
          </span>
        )}
      </PageTitle>
      <p className="id-line">
        <Link to="/throttles">All throttles</Link>{" "}
        <AuditLink subject={key === "" ? name : `${name}/${key}`} />
      </p>
      <Ready of={throttle} what="this throttle">
        {(shown) => (
          <>
            <Standing throttle={shown} />
            <section className="block" aria-label="Over time">
              <div className="plots-head">
                <h2>Over time</h2>
                <SpanChoice
                  span={span}
                  onChoose={(next) =>
                    void navigate({
                      to: "/throttles/$throttle",
                      params: { throttle: name },
                      search: { ...(key !== "" && { key }), ...spanSearch(next) },
                      resetScroll: false,
                    })
                  }
                />
              </div>
              <ThrottlePlots throttle={shown} events={events.data} span={span} />
            </section>
            <Ready of={events} what="changes of its limit">
              {(changes) => <Changes events={changes} />}
            </Ready>
            <Shares throttle={shown} />
            <Holders at={at} />
          </>
        )}
      </Ready>
    </>
  );
}

function Acts({ at, throttle }: { at: ThrottleAt; throttle: ThrottleFacts }) {
  const mayAct = useMay("admin");
  const [dialog, setDialog] = useState<"pin" | "unpin">();
  const close = () => setDialog(undefined);
  if (!mayAct) return null;
  return (
    <div className="page-aside">
      <button type="button" className="button" onClick={() => setDialog("pin")}>
        {throttle.pinned === undefined ? "Pin" : "Pin elsewhere"}
      </button>
      {throttle.pinned !== undefined && (
        <button type="button" className="button" onClick={() => setDialog("unpin")}>
          Unpin
        </button>
      )}
      {dialog === "pin" && <PinDialog at={at} throttle={throttle} onClose={close} />}
      {dialog === "unpin" && <ActDialog plan={unpinPlan(at)} onClose={close} />}
    </div>
  );
}

function unpinPlan(at: ThrottleAt): PlannedAct {
  return {
    title: "Unpin this limit?",
    explanation: <p>It is learned again, from what was known before it was pinned.</p>,
    verb: "Unpin",
    async perform(act) {
      const { throttle } = await throttleAsks.unpin(at, act);
      return `The limit is learned again, from ${exactCount(throttle.bound)} on.`;
    },
  };
}

function Standing({ throttle }: { throttle: ThrottleFacts }) {
  const { tone, text } = throttleSentence(throttle);
  const { bound, pinned, inFlight, waiting, outcomes, p95Ms, breaker, refillPerS } = throttle;
  return (
    <>
      <p className={`throttle-sentence of-${tone}`} role="status">
        <span className="dot" aria-hidden="true" />
        {text}
      </p>
      <section aria-label="As it is now" className="tiles">
        <Fact name={pinned === undefined ? "Learned limit" : "Pinned limit"}>
          {exactCount(bound)}
        </Fact>
        <Fact name="In flight" isNone={inFlight === 0}>
          {exactCount(inFlight)}
        </Fact>
        <Fact name="Waiting" isNone={waiting === 0}>
          {exactCount(waiting)}
        </Fact>
        <Fact name="429s so far" isNone={outcomes.throttled === 0}>
          {exactCount(outcomes.throttled)}
          {outcomes.throttled > 0 && <span className="soft"> {refusedText(throttle)}</span>}
        </Fact>
        <Fact name="Latency, p95" isNone={p95Ms === undefined}>
          {p95Ms === undefined ? "–" : durationText(p95Ms)}
        </Fact>
        <Fact name="Breaker" isNone={breaker === "closed"}>
          {breaker.replace("_", " ")}
        </Fact>
        {refillPerS !== undefined && (
          <Fact name="Refill per second">{exactCount(Math.round(refillPerS * 100) / 100)}</Fact>
        )}
      </section>
    </>
  );
}

function Fact({
  name,
  isNone = false,
  children,
}: {
  name: string;
  isNone?: boolean;
  children: ReactNode;
}) {
  return (
    <div className="tile">
      <span className={`tile-count ${isNone ? "is-none" : ""}`}>{children}</span>
      <span className="tile-name">{name}</span>
    </div>
  );
}

// What a person reads. The plots mark more of them.
const listedEvents = 50;

function Changes({ events }: { events: readonly ThrottleEventFacts[] }) {
  if (events.length === 0)
    return (
      <section className="block">
        <h2>Changes of the limit</h2>
        <p className="soft">
          None is stored: its limit was never changed, or is decided on each pod.
        </p>
      </section>
    );
  return (
    <section className="block">
      <h2>Changes of the limit</h2>
      <Wide label="Changes of the limit">
        <table>
          <thead>
            <tr>
              <th scope="col">Change</th>
              <th scope="col">Why</th>
              <th scope="col">By</th>
              <th scope="col" className="number">
                When
              </th>
            </tr>
          </thead>
          <tbody>
            {events.slice(0, listedEvents).map((event) => (
              <tr key={event.seq}>
                <th scope="row">
                  <span className={`change of-${changeTone(event)}`}>{changeText(event)}</span>
                </th>
                <td>{causeText(event.cause)}</td>
                <td className="soft">
                  {event.by === null ? "–" : <ShownText text={visibleLine(event.by, 80)} />}
                </td>
                <td className="number soft">
                  <When atMs={event.atMs} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {events.length > listedEvents && (
        <p className="soft">
          The latest {listedEvents} of {events.length === shownEvents ? "many" : events.length}.
        </p>
      )}
    </section>
  );
}

function Shares({ throttle: { pods, bound } }: { throttle: ThrottleFacts }) {
  const given = pods.reduce((sum, { share }) => sum + share, 0);
  return (
    <section className="block">
      <h2>
        Shares of pods{" "}
        <span className="soft">
          {exactCount(given)} of {exactCount(bound)} given
        </span>
      </h2>
      {pods.length === 0 ? (
        <p className="soft">No pod uses it now. A pod without calls holds nothing.</p>
      ) : (
        <Wide label="Shares of pods">
          <table>
            <thead>
              <tr>
                <th scope="col">Pod</th>
                <th scope="col" className="number">
                  Share
                </th>
                <th scope="col" className="number">
                  In flight
                </th>
                <th scope="col" className="number">
                  Waiting
                </th>
                <th scope="col" className="number">
                  Reported
                </th>
              </tr>
            </thead>
            <tbody>
              {pods.map(({ podId, share, inFlight, waiting, reportedMs }) => (
                <tr key={podId}>
                  <th scope="row">
                    <PodLink podId={podId} />
                  </th>
                  <td className="number">{exactCount(share)}</td>
                  <td className={`number ${inFlight === 0 ? "is-none" : ""}`}>
                    {exactCount(inFlight)}
                  </td>
                  <td className={`number ${waiting === 0 ? "is-none" : ""}`}>
                    {exactCount(waiting)}
                  </td>
                  <td className="number soft">
                    {reportedMs === undefined ? "not lately" : `${durationText(reportedMs)} ago`}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      )}
    </section>
  );
}

/** Asks pods who holds its permits, while it is open. */
function Holders({ at }: { at: ThrottleAt }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="block" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>Who holds a permit</h2>
      </summary>
      {isOpen && <HolderList at={at} />}
    </details>
  );
}

function HolderList({ at }: { at: ThrottleAt }) {
  const holders = useLive(["throttle holders", at.name, at.key], (signal) =>
    throttleAsks.holders(at, signal),
  );
  return (
    <Ready of={holders} what="the answers of pods">
      {({ permits, inFlight, unanswered }) => (
        <>
          {permits.length === 0 ? (
            <p className="soft">No pod that has answered holds one.</p>
          ) : (
            <Wide label="Who holds a permit">
              <table>
                <thead>
                  <tr>
                    <th scope="col">Held by</th>
                    <th scope="col">Pod</th>
                    <th scope="col" className="number">
                      Since
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {permits.map((permit, place) => (
                    <tr key={place}>
                      <th scope="row">
                        <Holder holder={permit.holder} />
                      </th>
                      <td>
                        <PodLink podId={permit.podId} />
                      </td>
                      <td className="number soft">
                        <When atMs={permit.sinceMs} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Wide>
          )}
          {inFlight > permits.length && permits.length > 0 && (
            <p className="soft">
              The {exactCount(permits.length)} longest of {exactCount(inFlight)}.
            </p>
          )}
          {unanswered.map(({ podId, reason }) => (
            <p key={podId} className="soft">
              <PodLink podId={podId} /> hasn&apos;t answered:{" "}
              <ShownText text={visibleLine(reason, 200)} />
            </p>
          ))}
        </>
      )}
    </Ready>
  );
}

function Holder({ holder }: { holder: HolderFacts["permits"][number]["holder"] }) {
  if (holder === null) return <span className="soft">code outside of handlers and agents</span>;
  const { what, id, name } = holder;
  const text = (
    <>
      {name !== null && <ShownText text={visibleLine(name, 80)} />}{" "}
      <code title={id}>{shortId(id)}</code>
    </>
  );
  return (
    <>
      {what === "task" && (
        <Link to="/tasks/$taskId" params={{ taskId: id }}>
          {text}
        </Link>
      )}
      {what === "run" && (
        <Link to="/runs/$runId" params={{ runId: id }}>
          {text}
        </Link>
      )}
      {what === "turn" && (
        <SessionLink session={{ sessionId: id, tenant: holder.tenant }}>{text}</SessionLink>
      )}{" "}
      <span className="soft">{what}</span>
    </>
  );
}
