import type { UIMessage } from "@ai-sdk/react";

/**
 * What a message may have besides text and calls. Of files only the name is shown: to load one would tell
 * whoever has it who looks.
 */
export function Other({ part }: { part: UIMessage["parts"][number] }) {
  if (part.type === "source-url") {
    const { url, title } = part;
    if (!/^https?:\/\//.test(url)) return <p className="data">Source: {title ?? url}</p>;
    return (
      <p className="data">
        Source:{" "}
        <a href={url} target="_blank" rel="noopener noreferrer nofollow">
          {title ?? url}
        </a>
      </p>
    );
  }
  if (part.type === "file")
    return (
      <p className="data">
        File: {part.filename ?? "without a name"} ({part.mediaType})
      </p>
    );
  return null;
}
