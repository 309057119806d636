import type { RecordedChange } from "flotilla";

export declare function loadCursor(): Promise<string>;
export declare function saveCursor(cursor: string): Promise<void>;
export declare function copy(change: RecordedChange): Promise<void>;
