import { useState } from "react";
import { copyText } from "../browser.ts";
import { ExactNumber, writeExact } from "../facts/exact-json.ts";
import { counted } from "../facts/spans.ts";
import { announce, useMay } from "../live.ts";
import { LongText, ShownText } from "./text.tsx";

const itemsAtOnce = 50;
const openedDepth = 2;

/** A JSON value, drawn only where it is opened, so that ten thousand keys cost no more than fifty. */
export function JsonValue({ value, label }: { value: unknown; label: string }) {
  const maySee = useMay("payloads:read");
  if (!maySee && typeof value === "string")
    return (
      <p className="soft">
        <ShownText text={value} />, which <code>payloads:read</code> shows
      </p>
    );
  return (
    <div className="value">
      <div className="value-bar">
        <button
          type="button"
          className="inline"
          onClick={() => void copy(value, label)}
          aria-label={`Copy ${label} as JSON`}
        >
          copy
        </button>
      </div>
      <div className="value-body" role="group" aria-label={label} tabIndex={0}>
        <Node value={value} depth={0} />
      </div>
    </div>
  );
}

async function copy(value: unknown, label: string): Promise<void> {
  const isCopied = await copyText(writeExact(value));
  announce(isCopied ? `Copied ${label}.` : "The browser doesn't let this page copy.");
}

function Node({ value, depth }: { value: unknown; depth: number }) {
  if (value instanceof ExactNumber) return <span className="of-number">{value.source}</span>;
  if (typeof value === "string")
    return (
      <span className="of-text">
        <LongText text={value} isQuoted />
      </span>
    );
  if (typeof value === "number") return <span className="of-number">{String(value)}</span>;
  if (typeof value !== "object" || value === null)
    return <span className="of-word">{String(value)}</span>;
  if (Array.isArray(value))
    return (
      <Items
        entries={value.map((each, at) => [String(at), each])}
        depth={depth}
        brackets={["[", "]"]}
        one="item"
        isNamed={false}
      />
    );
  return (
    <Items
      entries={Object.entries(value)}
      depth={depth}
      brackets={["{", "}"]}
      one="field"
      isNamed={true}
    />
  );
}

type ItemsProps = {
  entries: readonly (readonly [string, unknown])[];
  depth: number;
  brackets: readonly [string, string];
  one: string;
  isNamed: boolean;
};

function Items({ entries, depth, brackets: [first, last], one, isNamed }: ItemsProps) {
  const [isOpen, setOpen] = useState(depth < openedDepth);
  const [shown, setShown] = useState(itemsAtOnce);
  if (entries.length === 0) return <span className="of-word">{first + last}</span>;
  const what = counted(entries.length, one);
  return (
    <>
      <button
        type="button"
        className="fold"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
        aria-label={`${what}, ${isOpen ? "fold" : "unfold"}`}
      >
        {first}
        {!isOpen && (
          <>
            <span className="soft"> {what} </span>
            {last}
          </>
        )}
      </button>
      {isOpen && (
        <>
          <ul className="items">
            {entries.slice(0, shown).map(([name, each]) => (
              <li key={name}>
                {isNamed && (
                  <span className="of-name">
                    <ShownText text={name} />:{" "}
                  </span>
                )}
                <Node value={each} depth={depth + 1} />
              </li>
            ))}
            {entries.length > shown && (
              <li>
                <button
                  type="button"
                  className="inline"
                  onClick={() => setShown(shown + itemsAtOnce * 4)}
                >
                  {counted(entries.length - shown, `more ${one}`)}
                </button>
              </li>
            )}
          </ul>
          <span className="of-word">{last}</span>
        </>
      )}
    </>
  );
}
