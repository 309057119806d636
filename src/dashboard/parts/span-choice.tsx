import { type Span, spans } from "../facts/series/span.ts";

/** How far back the plots of a page look. */
export function SpanChoice({ span, onChoose }: { span: Span; onChoose: (span: Span) => void }) {
  return (
    <div className="choice" role="group" aria-label="Span of the plots">
      {Object.entries(spans).map(([key, { name }]) => (
        <button
          key={key}
          type="button"
          aria-pressed={key === span}
          onClick={() => onChoose(key as Span)}
        >
          {name}
        </button>
      ))}
    </div>
  );
}
