import type { UIMessage } from "@ai-sdk/react";

/** Pictures that are nothing but pictures. */
const pictureType = /^image\/(?:png|jpeg|gif|webp|avif)$/;
const pictureData = /^data:image\/(?:png|jpeg|gif|webp|avif);base64,/;

/**
 * What a message may have besides text and calls. Of files from elsewhere only the name is shown: to load one
 * would tell its server who looks.
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
  if (part.type === "file") return <FilePart {...part} />;
  if (part.type === "steering-message") return <Heard parts={part.parts} />;
  return null;
}

/** Where an answer has heard a message that came while it was made. The message itself stands above it. */
function Heard({
  parts,
}: Pick<Extract<UIMessage["parts"][number], { type: "steering-message" }>, "parts">) {
  const said = parts.map((part) => (part.type === "text" ? part.text : part.filename)).join(" ");
  return <p className="data">Heard: {said}</p>;
}

function FilePart(part: Extract<UIMessage["parts"][number], { type: "file" }>) {
  const { url, mediaType, filename = "without a name" } = part;
  const isStored = isOfThisServer(url);
  if (pictureType.test(mediaType) && (isStored || pictureData.test(url)))
    return <img className="picture" src={url} alt={filename} />;
  const name = `${filename} (${mediaType})`;
  return (
    <p className="data">
      File:{" "}
      {isStored ? (
        <a href={url} target="_blank" rel="noopener noreferrer">
          {name}
        </a>
      ) : (
        name
      )}
    </p>
  );
}

function isOfThisServer(url: string): boolean {
  return url.startsWith(new URL("/v1/files/", location.href).href);
}
