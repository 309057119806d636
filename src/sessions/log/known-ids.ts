/**
 * The places of what clients have sent lately, so that sending it again is answered at once. What isn't
 * known here is found by the journal, which stores no client id twice.
 */
export function knownIds(most = 65_536) {
  const seqs = new Map<string, number>();
  const key = (sessionId: string, clientId: string) => `${sessionId} ${clientId}`;
  return {
    seqOf: (sessionId: string, clientId: string) => seqs.get(key(sessionId, clientId)),
    add(sessionId: string, clientId: string, seq: number): void {
      seqs.set(key(sessionId, clientId), seq);
      if (seqs.size > most) seqs.delete(seqs.keys().next().value!);
    },
  };
}

export type KnownIds = ReturnType<typeof knownIds>;
