import { Link, useSearch } from "@tanstack/react-router";
import { throttleAsks } from "../../asks/throttles.ts";
import { durationText, exactCount } from "../../facts/spans.ts";
import { refusedText, type ThrottleFacts, useOf } from "../../facts/throttles/throttle.ts";
import { visibleLine } from "../../facts/visible.ts";
import { useLive } from "../../live.ts";
import { PodLink, ThrottleLink } from "../../parts/links.tsx";
import { Advice, Badge, When, Wide } from "../../parts/marks.tsx";
import { Empty, PageTitle, Ready } from "../../parts/states.tsx";
import { ShownText } from "../../parts/text.tsx";
import "../../styles/throttles.css";

/** What do the APIs take? Every throttle and key, with what was learned of it. */
export function ThrottlesPage() {
  const { cursor } = useSearch({ from: "/throttles" });
  const page = useLive(["throttles", cursor], (signal) => throttleAsks.list(cursor, signal));
  return (
    <>
      <PageTitle name="Throttles">Throttles</PageTitle>
      <Ready of={page} what="throttles">
        {({ throttles, next }) => (
          <>
            {throttles.length === 0 && cursor === undefined ? (
              <Empty
                title="No throttle has been used."
                command={
                  'const api = throttle("openai");\nawait api.fetch("https://api.openai.com/v1/models");'
                }
              >
                A throttle is declared in code, and is here from its first call on:
              </Empty>
            ) : (
              <ThrottleTable throttles={throttles} />
            )}
            <nav className="pager" aria-label="Pages of the list">
              {cursor !== undefined && (
                <Link to="/throttles" search={{}}>
                  To the first
                </Link>
              )}
              {next !== null && (
                <Link to="/throttles" search={{ cursor: next }}>
                  More
                </Link>
              )}
            </nav>
          </>
        )}
      </Ready>
    </>
  );
}

function ThrottleTable({ throttles }: { throttles: readonly ThrottleFacts[] }) {
  return (
    <section className="block">
      <Wide label="Throttles">
        <table className="throttles">
          <thead>
            <tr>
              <th scope="col">Throttle</th>
              <th scope="col" className="number">
                Limit
              </th>
              <th scope="col">In flight</th>
              <th scope="col" className="number">
                Waiting
              </th>
              <th scope="col" className="number">
                429s
              </th>
              <th scope="col" className="number">
                p95
              </th>
              <th scope="col">Breaker</th>
              <th scope="col">Shared by</th>
              <th scope="col" className="number">
                Changed
              </th>
            </tr>
          </thead>
          <tbody>
            {throttles.map((throttle) => (
              <ThrottleRow key={`${throttle.name} ${throttle.key}`} throttle={throttle} />
            ))}
          </tbody>
        </table>
      </Wide>
      <p className="soft">
        <Advice text="`flotilla throttles --watch` shows the same in a terminal." />
      </p>
    </section>
  );
}

function ThrottleRow({ throttle }: { throttle: ThrottleFacts }) {
  const { bound, pinned, waiting, outcomes, p95Ms, lastUpdateMs } = throttle;
  return (
    <tr>
      <th scope="row">
        <ThrottleName throttle={throttle} />
      </th>
      <td className="number">
        {exactCount(bound)} {pinned !== undefined && <Badge tone="warn">pinned</Badge>}
      </td>
      <td>
        <InFlight throttle={throttle} />
      </td>
      <td className={`number ${waiting === 0 ? "is-none" : ""}`}>{exactCount(waiting)}</td>
      <td className={`number ${outcomes.throttled === 0 ? "is-none" : ""}`}>
        {exactCount(outcomes.throttled)}
        {outcomes.throttled > 0 && <span className="soft"> {refusedText(throttle)}</span>}
      </td>
      <td className={`number ${p95Ms === undefined ? "is-none" : ""}`}>
        {p95Ms === undefined ? "–" : durationText(p95Ms)}
      </td>
      <td>
        <Breaker throttle={throttle} />
      </td>
      <td>
        <SharedBy throttle={throttle} />
      </td>
      <td className="number soft">
        <When atMs={lastUpdateMs} />
      </td>
    </tr>
  );
}

function ThrottleName({ throttle: { name, key } }: { throttle: ThrottleFacts }) {
  return (
    <ThrottleLink throttle={{ name, key }}>
      <ShownText text={visibleLine(name, 120)} />
      {key !== "" && (
        <span className="soft">
          {" "}
          <ShownText text={visibleLine(key, 120)} />
        </span>
      )}
    </ThrottleLink>
  );
}

/** How many permits are in use, and how much of the limit that is. */
function InFlight({ throttle }: { throttle: Pick<ThrottleFacts, "inFlight" | "bound"> }) {
  return (
    <span className="in-flight">
      <span className={throttle.inFlight === 0 ? "number is-none" : "number"}>
        {exactCount(throttle.inFlight)}
      </span>
      <span className="share" aria-hidden="true">
        <span className="part of-open" style={{ width: `${useOf(throttle) * 100}%` }} />
      </span>
    </span>
  );
}

/** Whether calls are let through. */
function Breaker({
  throttle: { breaker, holdMs },
}: {
  throttle: Pick<ThrottleFacts, "breaker" | "holdMs">;
}) {
  if (breaker === "open") return <Badge tone="wrong">open</Badge>;
  if (breaker === "half_open") return <Badge tone="warn">half open</Badge>;
  if (holdMs >= 1_000) return <Badge tone="warn">held for {durationText(holdMs)}</Badge>;
  return <span className="soft">closed</span>;
}

const shownPods = 2;

function SharedBy({ throttle: { pods } }: { throttle: ThrottleFacts }) {
  const sharing = pods.filter(({ share }) => share > 0);
  if (sharing.length === 0) return <span className="soft">no pod now</span>;
  return (
    <ul className="names">
      {sharing.slice(0, shownPods).map(({ podId, share }) => (
        <li key={podId}>
          <PodLink podId={podId} /> <span className="soft">{exactCount(share)}</span>
        </li>
      ))}
      {sharing.length > shownPods && (
        <li className="soft">{exactCount(sharing.length - shownPods)} more</li>
      )}
    </ul>
  );
}
