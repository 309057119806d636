/** The stream of some topics, as a tab opens it. */
export function watchUrl(url: string, topics: string): string {
  return `${url}/v1/watch?topics=${encodeURIComponent(topics)}`;
}

/** Reads a stream until every topic has had its snapshot, whatever trouble there was before. */
export async function readSnapshots(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  topics: string,
): Promise<void> {
  const wanted = topics.split(",").length;
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error(`the stream of ${topics} ended before it had begun`);
    text += decoder.decode(value, { stream: true });
    if ([...text.matchAll(/^event: snapshot$/gm)].length >= wanted) return;
  }
}
