import { Fragment, useState } from "react";
import { linkIn, piecesOf } from "../facts/visible.ts";
import { counted } from "../facts/spans.ts";

/** Text that users, tasks or programs have stored: always text, with nothing in it unseen. */
export function ShownText({ text }: { text: string }) {
  const pieces = piecesOf(text);
  return (
    <bdi>
      {pieces.map((piece, at) =>
        "text" in piece ? (
          <Fragment key={at}>{piece.text}</Fragment>
        ) : (
          <span key={at} className="hidden-character" title="a character that can't be seen">
            {piece.hidden}
          </span>
        ),
      )}
    </bdi>
  );
}

const foldedChars = 2_000;

/** The same for texts of any length: what is long is shown when it is asked for. */
export function LongText({
  text,
  maxChars = foldedChars,
  isQuoted = false,
}: {
  text: string;
  maxChars?: number;
  isQuoted?: boolean;
}) {
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > maxChars;
  const link = linkIn(text);
  const quote = isQuoted ? '"' : "";
  return (
    <>
      {quote}
      <ShownText text={isLong && !isWhole ? `${text.slice(0, maxChars)}…` : text} />
      {quote}
      {link && (
        <a className="way-out" href={link.href} target="_blank" rel="noreferrer noopener">
          {link.host}
          <span className="hidden"> in a new tab</span>
        </a>
      )}
      {isLong && (
        <button type="button" className="inline" onClick={() => setWhole(!isWhole)}>
          {isWhole ? "show less" : `show all ${counted(text.length, "character")}`}
        </button>
      )}
    </>
  );
}

/** The end of an id, which tells it from its neighbours; all of it on hover. */
export function shortId(id: string): string {
  return id.length > 14 ? `…${id.slice(-12)}` : id;
}
