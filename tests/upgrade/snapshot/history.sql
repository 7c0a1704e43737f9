BEGIN TRANSACTION;
CREATE TABLE waitroom_changes (
	room VARCHAR(48) NOT NULL, 
	ms BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	at_ms BIGINT NOT NULL, 
	operator TEXT NOT NULL, 
	action VARCHAR(16) NOT NULL, 
	visitor VARCHAR(22) NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (room, ms, seq)
);
INSERT INTO "waitroom_changes" VALUES('shop',1795384761778,1,1795384761777,'api','release','Wf9rttfJ9D2uZW4Wyf2nIg','');
INSERT INTO "waitroom_changes" VALUES('shop',1795384767921,0,1795384767920,'api','change','','{"message": "Back in ten minutes"}');
CREATE TABLE waitroom_entries (
	room VARCHAR(48) NOT NULL, 
	visitor VARCHAR(22) NOT NULL, 
	class_name VARCHAR(48) DEFAULT '' NOT NULL, 
	queue_order BIGINT, 
	joined_ms BIGINT, 
	queued_ms BIGINT, 
	called_ms BIGINT, 
	admitted_ms BIGINT, 
	ended_ms BIGINT, 
	end_reason VARCHAR(16), 
	first_position BIGINT, 
	last_position BIGINT, 
	returns INTEGER DEFAULT '0' NOT NULL, 
	moved_ms BIGINT, 
	changed_ms BIGINT NOT NULL, 
	PRIMARY KEY (room, visitor)
);
INSERT INTO "waitroom_entries" VALUES('shop','stDtNE16x8FJEEnD7Udtcg','',1795384761684000,1795384761684,NULL,NULL,1795384761684,NULL,NULL,NULL,NULL,0,NULL,1795384761684);
INSERT INTO "waitroom_entries" VALUES('shop','FmCFFOMFh4WDn0XM4MD7OA','',1795384761689000,1795384761689,NULL,NULL,1795384761689,1795384767878,'left',NULL,NULL,0,NULL,1795384767878);
INSERT INTO "waitroom_entries" VALUES('shop','Wf9rttfJ9D2uZW4Wyf2nIg','',1795384761697000,1795384761697,NULL,NULL,1795384761697,1795384761777,'released',NULL,NULL,0,NULL,1795384761777);
INSERT INTO "waitroom_entries" VALUES('shop','NO2tI9V7t2AfgXrjytmdGg','',1795384761705000,1795384761705,1795384761705,1795384767761,1795384767868,NULL,NULL,1,1,0,NULL,1795384767868);
INSERT INTO "waitroom_entries" VALUES('shop','tBh-LfzubAv0sC3gPEXFaw','',1795384761716000,1795384761716,1795384761716,1795384773801,NULL,NULL,NULL,2,1,0,NULL,1795384773801);
INSERT INTO "waitroom_entries" VALUES('shop','Yt0hIdgDKnX6pjjioQqoQQ','',1795384761725000,1795384761725,1795384761725,NULL,NULL,NULL,NULL,3,3,0,NULL,1795384761725);
INSERT INTO "waitroom_entries" VALUES('shop','_76uQnbAd926Rmln-49rgg','',1795384761733000,1795384761733,1795384761733,NULL,NULL,NULL,NULL,4,4,0,NULL,1795384761733);
CREATE TABLE waitroom_entries_archive (
	room VARCHAR(48) NOT NULL, 
	visitor VARCHAR(22) NOT NULL, 
	class_name VARCHAR(48) DEFAULT '' NOT NULL, 
	queue_order BIGINT, 
	joined_ms BIGINT, 
	queued_ms BIGINT, 
	called_ms BIGINT, 
	admitted_ms BIGINT, 
	ended_ms BIGINT, 
	end_reason VARCHAR(16), 
	first_position BIGINT, 
	last_position BIGINT, 
	returns INTEGER DEFAULT '0' NOT NULL, 
	moved_ms BIGINT, 
	changed_ms BIGINT NOT NULL, 
	PRIMARY KEY (room, visitor)
);
CREATE TABLE waitroom_events (
	room VARCHAR(48) NOT NULL, 
	ms BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	visitor VARCHAR(22) NOT NULL, 
	why VARCHAR(16) NOT NULL, 
	at_ms BIGINT NOT NULL, 
	more TEXT NOT NULL, 
	PRIMARY KEY (room, ms, seq)
);
INSERT INTO "waitroom_events" VALUES('shop',1795384761684,0,'admitted','stDtNE16x8FJEEnD7Udtcg','at_once',1795384761684,'{"order":"1795384761684000"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761689,0,'admitted','FmCFFOMFh4WDn0XM4MD7OA','at_once',1795384761689,'{"order":"1795384761689000"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761697,0,'admitted','Wf9rttfJ9D2uZW4Wyf2nIg','at_once',1795384761697,'{"order":"1795384761697000"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761705,0,'joined','NO2tI9V7t2AfgXrjytmdGg','new',1795384761705,'{"order":"1795384761705000","position":"1"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761717,0,'joined','tBh-LfzubAv0sC3gPEXFaw','new',1795384761716,'{"order":"1795384761716000","position":"2"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761725,0,'joined','Yt0hIdgDKnX6pjjioQqoQQ','new',1795384761725,'{"order":"1795384761725000","position":"3"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761733,0,'joined','_76uQnbAd926Rmln-49rgg','new',1795384761733,'{"order":"1795384761733000","position":"4"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761778,0,'released','Wf9rttfJ9D2uZW4Wyf2nIg','session',1795384761777,'{}');
INSERT INTO "waitroom_events" VALUES('shop',1795384761778,1,'operator','Wf9rttfJ9D2uZW4Wyf2nIg','release',1795384761777,'{"by":"api","detail":""}');
INSERT INTO "waitroom_events" VALUES('shop',1795384767761,0,'called','NO2tI9V7t2AfgXrjytmdGg','head',1795384767761,'{"position":"1","order":"1795384761705000"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384767869,0,'admitted','NO2tI9V7t2AfgXrjytmdGg','claimed',1795384767868,'{"order":"1795384761705000","joined":"1795384761705"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384767878,0,'left','FmCFFOMFh4WDn0XM4MD7OA','session',1795384767878,'{}');
INSERT INTO "waitroom_events" VALUES('shop',1795384767921,0,'operator','','change',1795384767920,'{"by":"api","detail":"{\"message\": \"Back in ten minutes\"}"}');
INSERT INTO "waitroom_events" VALUES('shop',1795384773801,0,'called','tBh-LfzubAv0sC3gPEXFaw','head',1795384773801,'{"position":"1","order":"1795384761716000"}');
CREATE TABLE waitroom_events_archive (
	room VARCHAR(48) NOT NULL, 
	ms BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	visitor VARCHAR(22) NOT NULL, 
	why VARCHAR(16) NOT NULL, 
	at_ms BIGINT NOT NULL, 
	more TEXT NOT NULL, 
	PRIMARY KEY (room, ms, seq)
);
CREATE TABLE waitroom_version (
	version_num VARCHAR(32) NOT NULL
);
INSERT INTO "waitroom_version" VALUES('0001');
CREATE INDEX ix_waitroom_entries_joined ON waitroom_entries (room, joined_ms);
CREATE INDEX ix_waitroom_entries_ended ON waitroom_entries (room, ended_ms, changed_ms);
CREATE INDEX ix_waitroom_events_visitor ON waitroom_events (room, visitor);
CREATE INDEX ix_waitroom_entries_archive_joined ON waitroom_entries_archive (room, joined_ms);
CREATE INDEX ix_waitroom_entries_archive_ended ON waitroom_entries_archive (room, ended_ms, changed_ms);
CREATE INDEX ix_waitroom_events_archive_visitor ON waitroom_events_archive (room, visitor);
COMMIT;
