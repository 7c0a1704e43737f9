// Descriptions of a room's mode.

export const MODES = {
  running: ['Running', 'Those in the queue are let in as slots come free.'],
  paused: ['Paused', 'Nobody is let in. Newcomers wait in the queue.'],
  draining: ['Draining', 'Nobody new joins the queue. Those in it are let in.'],
  open: ['Open', 'The room is off: everybody passes, uncounted.'],
  closed: [
    'Closed',
    'Nobody comes in, nobody takes a place, nobody is called.',
  ],
  prequeue: [
    'Pre-queue',
    'Places are taken. They are drawn at the opening, and nobody is let in before.',
  ],
};
// An operator's change takes precedence over the events.
export const shown = ({ mode, phase }) =>
  mode === 'running' && phase !== 'open' ? phase : mode;
