import { type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { momentText } from "../facts/series/moment.ts";
import { rising } from "../facts/series/order.ts";
import { exactText } from "../facts/spans.ts";
import type { Drawing, Drawn, LineShape } from "./plot-drawing.ts";
import { ShownText } from "./text.tsx";
import "../styles/plots.css";

/** A line of a plot. Where a value is missing, nothing was counted. */
export type PlotLine = LineShape & {
  readonly name: string;
  readonly values: readonly (number | null)[];
};

/** Something that happened at a time, such as a change of a bound, with its cause. */
export type PlotMark = { readonly atMs: number; readonly text: string };

export type PlotProps = {
  readonly title: string;
  /** When each value was, in milliseconds, rising. */
  readonly timesMs: readonly number[];
  readonly lines: readonly PlotLine[];
  /** A value as text, with its unit. */
  readonly valueText: (value: number) => string;
  /** Such as a change of a bound, with its cause. */
  readonly marks?: readonly PlotMark[];
  /** Values are milliseconds, so that the axis has seconds and minutes. */
  readonly isDuration?: boolean;
  /** Leads to what is behind it. */
  readonly link?: ReactNode;
};

const noMarks: readonly PlotMark[] = [];
// More than that is a list, which the table has.
const maxMarksAtCursor = 2;

/**
 * Lines over time, with the same as a table for people that can't see them. The cursor is moved by the
 * pointer, or by keys, and shows values as text.
 */
export function Plot(props: PlotProps) {
  const { title, timesMs, lines, valueText, marks = noMarks, isDuration = false, link } = props;
  const host = useRef<HTMLDivElement>(null);
  const drawing = useRef<Drawing>(undefined);
  const [cursor, setCursor] = useState<number>();
  const [isMissing, setMissing] = useState(false);

  const ordered = useMemo(
    () => rising({ timesMs, lines: lines.map(({ values }) => values) }),
    [timesMs, lines],
  );
  const rows = useMemo(
    () =>
      ordered.timesMs.flatMap((_, row) =>
        ordered.lines.some((values) => values[row] !== null) ? [row] : [],
      ),
    [ordered],
  );
  const drawn: Drawn = { timesMs: ordered.timesMs, values: ordered.lines, marks, valueText };
  const latest = useRef(drawn);
  const hasValues = rows.length > 0;
  const shape = JSON.stringify(lines.map(({ tone, kind }) => ({ tone, kind })));

  useEffect(() => {
    latest.current = drawn;
    drawing.current?.show(drawn);
  }, [ordered, marks]);

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    let isGone = false;
    const draw = async () => {
      const { drawPlot } = await import("./plot-drawing.ts");
      if (isGone) return;
      const shapes = JSON.parse(shape) as LineShape[];
      const options = { isDuration, onCursor: setCursor };
      drawing.current = drawPlot(element, shapes, latest.current, options);
    };
    draw().catch(() => setMissing(true));
    return () => {
      isGone = true;
      drawing.current?.remove();
      drawing.current = undefined;
    };
  }, [shape, isDuration, hasValues]);

  const row = cursor !== undefined && cursor < ordered.timesMs.length ? cursor : rows.at(-1);
  const valueAt = (line: number) => {
    const value = row === undefined ? null : ordered.lines[line]![row]!;
    return value === null ? "–" : valueText(value);
  };
  const near =
    cursor === undefined || row === undefined ? [] : marksAt(marks, ordered.timesMs, row);
  const reading =
    row === undefined
      ? "nothing was counted"
      : `${momentText(ordered.timesMs[row]!)}: ${lines.map(({ name }, at) => `${name} ${valueAt(at)}`).join(", ")}`;

  const onKeyDown = (event: KeyboardEvent) => {
    const next = nextRow(event.key, row ?? 0, ordered.timesMs.length);
    if (next === undefined) return;
    event.preventDefault();
    drawing.current?.pointAt(next);
  };

  return (
    <figure className="plot" aria-label={title}>
      <figcaption>
        <span className="plot-title">{title}</span>
        {link}
      </figcaption>
      <ul className="plot-legend">
        {lines.map(({ name, tone }, at) => (
          <li key={name}>
            <span className={`plot-key of-${tone}`} aria-hidden="true" />
            <ShownText text={name} /> <strong>{valueAt(at)}</strong>
          </li>
        ))}
        {row !== undefined && (
          <li className="soft plot-when">{momentText(ordered.timesMs[row]!)}</li>
        )}
      </ul>
      {hasValues ? (
        <div
          ref={host}
          className="plot-drawing"
          role="slider"
          tabIndex={0}
          aria-label={`${title}: move through time`}
          aria-valuemin={0}
          aria-valuemax={ordered.timesMs.length - 1}
          aria-valuenow={row ?? 0}
          aria-valuetext={reading}
          onKeyDown={onKeyDown}
          onBlur={() => drawing.current?.pointAt(undefined)}
        />
      ) : (
        <p className="plot-none soft">Nothing was counted in this time.</p>
      )}
      {isMissing && (
        <p className="soft">The drawing can&apos;t be loaded. The table has the same values.</p>
      )}
      {marks.length > 0 && (
        <p className="plot-near soft">
          {near.slice(-maxMarksAtCursor).map(({ atMs, text }, at) => (
            <span key={`${atMs} ${at}`} title={exactText(atMs)}>
              <ShownText text={text} />
            </span>
          ))}
          {near.length > maxMarksAtCursor && (
            <span>{near.length - maxMarksAtCursor} more at this time</span>
          )}
        </p>
      )}
      <PlotTable {...props} marks={marks} ordered={ordered} rows={rows} />
    </figure>
  );
}

/** The same values as a table, which is made when it is opened. */
function PlotTable({
  title,
  lines,
  valueText,
  marks,
  ordered: { timesMs, lines: values },
  rows,
}: Pick<PlotProps, "title" | "lines" | "valueText"> & {
  marks: readonly PlotMark[];
  ordered: ReturnType<typeof rising>;
  rows: readonly number[];
}) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="plot-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        as a table<span className="hidden">: {title}</span>
      </summary>
      {isOpen && (
        <div className="plot-rows" role="region" aria-label={`${title} as a table`} tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">Time</th>
                {lines.map(({ name }) => (
                  <th scope="col" key={name} className="number">
                    <ShownText text={name} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={timesMs[row]}>
                  <th scope="row">
                    <time dateTime={isoOf(timesMs[row]!)} title={exactText(timesMs[row]!)}>
                      {momentText(timesMs[row]!)}
                    </time>
                  </th>
                  {lines.map(({ name }, line) => {
                    const value = values[line]![row]!;
                    return (
                      <td key={name} className="number">
                        {value === null ? "–" : valueText(value)}
                      </td>
                    );
                  })}
                </tr>
              ))}
            </tbody>
          </table>
          {rows.length < timesMs.length && (
            <p className="soft">Times without a row are those in which nothing was counted.</p>
          )}
          {marks.length > 0 && (
            <ul className="lines">
              {marks.map(({ atMs, text }, at) => (
                <li key={`${atMs} ${at}`}>
                  <span className="soft">{momentText(atMs)}</span> <ShownText text={text} />
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
    </details>
  );
}

/** The row that a key leads to from another; undefined where it leads nowhere. */
function nextRow(key: string, row: number, count: number): number | undefined {
  const steps: Readonly<Record<string, number>> = {
    ArrowLeft: -1,
    ArrowDown: -1,
    ArrowRight: 1,
    ArrowUp: 1,
    PageUp: 10,
    PageDown: -10,
    Home: -Infinity,
    End: Infinity,
  };
  if (!Object.hasOwn(steps, key) || count === 0) return undefined;
  return Math.max(0, Math.min(count - 1, row + steps[key]!));
}

/** The marks between this row and the next one. */
function marksAt(
  marks: readonly PlotMark[],
  timesMs: readonly number[],
  row: number,
): readonly PlotMark[] {
  const fromMs = timesMs[row]!;
  const toMs = timesMs[row + 1] ?? Infinity;
  return marks.filter(({ atMs }) => atMs >= fromMs && atMs < toMs);
}

function isoOf(atMs: number): string | undefined {
  const date = new Date(atMs);
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}
