import { z } from "zod";

export declare const stock: {
  reserve(item: string, key: string): Promise<string>;
  release(reservation: string): Promise<void>;
};
export declare const bank: {
  charge(cents: number, options: { key: string; note: string }): Promise<void>;
};
export declare const warehouse: { send(reservation: string): Promise<string> };

export const input = z.object({ item: z.string() });
export const output = z.object({ parcel: z.string() });
export declare function reserve(): Promise<{ shelf: number }>;
export declare function ship(): Promise<{ parcel: string }>;
export declare function search(topic: string): Promise<string[]>;
export declare function fetchText(url: string): Promise<string>;
export declare function improve(draft: string, texts: string[]): Promise<string>;
