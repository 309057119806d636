export declare function search(topic: string): Promise<string[]>;
export declare function fetchText(url: string): Promise<string>;
export declare function improve(
  text: string,
  texts: string[],
): Promise<{ good: boolean; text: string }>;
export declare function publish(text: string, options: { idempotencyKey: string }): Promise<void>;
export declare function findCharge(order: string): Promise<{ id: string } | undefined>;
export declare function charge(order: string): Promise<{ id: string }>;
export declare function inTransaction(
  work: (tx: { query(text: string, values: unknown[]): Promise<unknown> }) => Promise<void>,
): Promise<void>;
