import { memo } from "react";
import { type Block, blocksOf, type Span } from "../lib/prose.ts";

/** A text as it was written. Code is set apart and addresses can be followed; nothing else is read into it. */
export const Prose = memo(function Prose({ text }: { text: string }) {
  return (
    <div className="prose">
      {blocksOf(text).map((block, at) => (
        <BlockOf key={at} block={block} />
      ))}
    </div>
  );
});

function BlockOf({ block }: { block: Block }) {
  if (block.type === "code")
    return (
      <pre tabIndex={0} aria-label={`Code ${block.language}`.trim()}>
        <code>{block.text}</code>
      </pre>
    );
  return (
    <p>
      {block.spans.map((span, at) => (
        <SpanOf key={at} span={span} />
      ))}
    </p>
  );
}

function SpanOf({ span }: { span: Span }) {
  if (span.type === "plain") return span.text;
  if (span.type === "code") return <code>{span.text}</code>;
  return (
    <a href={span.text} target="_blank" rel="noopener noreferrer nofollow">
      {span.text}
    </a>
  );
}
